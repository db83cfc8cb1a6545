"""Other systems on the same documents. Each worker is a script of its own, run by the Python of its own environment."""
