"""What the proxy forwards calls to over HTTP: OpenAI-compatible servers, litellm's providers, native pass-through.

Each server is one object with the same four operations (``base.Server``); which of them gets a call is decided in
``agl.proxy.routing``.
"""
