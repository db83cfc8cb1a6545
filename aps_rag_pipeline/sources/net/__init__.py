"""The one polite transport that every live feed goes through, and its shapes for the client libraries."""
