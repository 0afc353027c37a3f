"""The OpenAI-compatible door to the model: attributes, forwards and records every call.

A call's way: server -> app -> routes (whose call) -> openai_chat (the wire format) -> repeats (seen before?)
-> attempts (may it call, with which sampling) -> upstream -> record (the span) -> writer (durable) -> the agent.
"""

from agl.proxy.server import LLMProxy, ProxyServer

__all__ = ["LLMProxy", "ProxyServer"]
