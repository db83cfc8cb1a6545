"""Process variables as services tell them: an Archiver Appliance, Channel Access and PVAccess."""
