"""Teams channels over Microsoft Graph: signing in, asking, listing threads, and telling which of them moved."""
