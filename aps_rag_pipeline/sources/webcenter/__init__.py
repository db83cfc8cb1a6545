"""Oracle WebCenter Content (once Stellent, later UCM): controlled documents over its `idcplg` service."""
