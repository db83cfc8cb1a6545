"""Chat messages as Microsoft Graph gives them: what they say, what hangs on them, which thread they belong to."""
