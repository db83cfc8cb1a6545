"""The forms in which log books are exported, each turned into the same entries."""
