"""How fast, how large and how right. Not shipped; `python -m benchmarks.run --help` says what there is."""
