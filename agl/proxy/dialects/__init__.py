"""Wire formats of clients: OpenAI chat completions, completions and responses; Anthropic messages."""
