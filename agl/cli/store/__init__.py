"""agl store: serve the records, forget old ones, copy them."""
