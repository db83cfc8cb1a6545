"""Finding credentials in text: by their shape, and by the place where they stand."""
