"""Where numbers go: a JSONL file always, the console, the store, and whoever else asks (base, logger)."""
