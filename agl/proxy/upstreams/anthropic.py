"""AnthropicServer: a server of Anthropic's Messages, for every client.

Calls of Anthropic's clients are passed through as they came; those of others are translated and answered canonically.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agl.proxy.canonical import token_count
from agl.proxy.dialects.anthropic.errors import unsupported
from agl.proxy.dialects.anthropic.outgoing import message_request
from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.upstream import NATIVE, CallContext
from agl.proxy.upstreams.http import HttpServer
from agl.proxy.upstreams.native import ANTHROPIC, NativeServer

Json = dict[str, Any]

_WANTED = ("logprobs", "return_token_ids")
"""What the proxy asks for of its own, and Anthropic does not tell."""
_OF_COUNTS = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"})
"""Parameters of a request that Anthropic counts the tokens of."""


class AnthropicServer:
    """Forwards calls to one base URL.

    Args:
        http: the server.
        model: what it calls the model; None: as the call does.
    """

    def __init__(self, http: HttpServer, *, model: str | None) -> None:
        self._http = http
        self._model = model
        self._native = NativeServer(http, ANTHROPIC, model=model)
        self._dialect = AnthropicMessages()

    def takes(self, context: CallContext) -> bool:
        """Anthropic's own calls, and all that can be said in a chat; Anthropic has no text completions."""
        if self._native.takes(context):
            return True
        is_text = context.dialect is not None and context.dialect.name == "openai.completions"
        return context.native_only is None and not is_text

    async def complete(self, request: Mapping[str, Any], context: CallContext) -> Json:
        """Answer a canonical request; the answer to an Anthropic client holds the native body.

        Raises:
            UpstreamError: the server's status and body, or why there is none.
            CallRefusedError: 400, the request has what cannot be said to Anthropic's models.
        """
        if self._native.takes(context):
            return await self._native.complete(request, context)
        answer = await self._native.complete(request, self._translated(request, context))
        del answer[NATIVE]
        return answer | {"created": int(time.time())}

    async def stream(self, request: Mapping[str, Any], context: CallContext) -> AsyncGenerator[Json]:
        """Answer a canonical request in chunks.

        Raises:
            UpstreamError: the same; also when the stream ends before its last event.
            CallRefusedError: the same.
        """
        is_own = self._native.takes(context)
        asked = context if is_own else self._translated(request, context)
        created = {"created": int(time.time())}
        async with aclosing(self._native.stream(request, asked)) as chunks:
            async for chunk in chunks:
                if is_own:
                    yield chunk
                elif chunk["choices"] or chunk.get("usage"):
                    del chunk[NATIVE]
                    yield chunk | created

    async def embed(self, body: Mapping[str, Any]) -> Json:
        """Refuse: Anthropic has no embeddings.

        Raises:
            UpstreamError: 404, always.
        """
        return await self._native.embed(body)

    async def count_tokens(self, request: Mapping[str, Any], context: CallContext) -> int:
        """Return how many tokens the server counts in the prompt of a request.

        Raises:
            UpstreamError: the server's status and body, or why there is none.
        """
        own = context if self._native.takes(context) else self._translated(request, context)
        asked = {name: value for name, value in own.native.items() if name in _OF_COUNTS}
        asked["model"] = self._model or request["model"]
        headers = {**ANTHROPIC.headers, **context.headers}
        body = await self._http.post("/messages/count_tokens", asked, headers=headers)
        count = token_count(self._http.parsed(body), "input_tokens")
        if count is None:
            raise self._http.broken("does not say how many tokens a prompt has")
        return count

    async def probe(self) -> bool:
        """Whether the server lists its models."""
        return await self._native.probe()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._native.aclose()

    def _translated(self, request: Mapping[str, Any], context: CallContext) -> CallContext:
        """The call as one of Anthropic's clients would have made it."""
        for name in _WANTED:
            if context.native.get(name):
                raise unsupported("Anthropic does not tell the tokens of its models", name)
        return replace(context, dialect=self._dialect, native=message_request(request), forced={})
