"""Serve the policy: the Engine protocol (base), the in-process transformers engine, any OpenAI-compatible URL (external)."""
