"""The OpenAI-compatible door to the model: attributes, forwards and records every call."""
