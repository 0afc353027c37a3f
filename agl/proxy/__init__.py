"""The door to the model for OpenAI's and Anthropic's clients: attributes, forwards and records every call.

A call's way: server -> app -> exchange (the HTTP request) -> routes (whose call) -> keys -> dialects (the wire format)
-> calls -> repeats (seen before?) -> attempts (may it call, with which sampling) -> upstream -> streams (chunks put
together) -> record (the span) -> writer (durable) -> dialects -> the agent.
"""

from agl.proxy.server import LLMProxy, ProxyServer

__all__ = ["LLMProxy", "ProxyServer"]
