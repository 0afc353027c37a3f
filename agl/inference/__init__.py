"""Serve the policy.

The Engine protocol (base), the in-process engine (transformers), any OpenAI-compatible URL (external).
"""
