"""Databases as a source: the configured query, a read-only session, and values as cells."""
