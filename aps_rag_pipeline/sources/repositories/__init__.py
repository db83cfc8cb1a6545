"""Git repositories, read without a git binary: histories, clones, and what a file of code is as a record."""
