"""Wikis: what makes a record of a page, whatever it comes from, and the live forms."""
