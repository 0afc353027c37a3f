"""The dialect of Anthropic's Messages: ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``.

Source: https://docs.claude.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from agl.proxy.dialects.anthropic.answer import message
from agl.proxy.dialects.anthropic.content import NativeOnly
from agl.proxy.dialects.anthropic.errors import error_object, refused
from agl.proxy.dialects.anthropic.events import MessageEvents
from agl.proxy.dialects.anthropic.native import MessageReader, chat_answer
from agl.proxy.dialects.anthropic.request import chat_request
from agl.proxy.dialects.base import ClientRequest
from agl.proxy.json_body import object_from_body


class AnthropicMessages:
    """Anthropic's wire format; a ``NativeDialect``."""

    @property
    def name(self) -> str:
        """``anthropic.messages``."""
        return "anthropic.messages"

    def request(self, body: bytes) -> ClientRequest:
        """Read a client's body.

        Raises:
            CallRefusedError: 400, what is wrong with which field.
        """
        return _client_request(object_from_body(body), counting=False)

    def count_request(self, body: bytes) -> ClientRequest:
        """Read the body of a request to count tokens; its ``chat`` is what a call of the model would be asked.

        Raises:
            CallRefusedError: 400, what is wrong with which field.
        """
        return _client_request(object_from_body(body), counting=True)

    def count_answer(self, num_tokens: int) -> bytes:
        """Return the body for a count."""
        return orjson.dumps({"input_tokens": num_tokens})

    def answer(self, request: ClientRequest, answer: Mapping[str, Any]) -> bytes:
        """Return the Message for a canonical answer."""
        return orjson.dumps(message(request, answer))

    def events(self, request: ClientRequest) -> MessageEvents:
        """Return the writer of a streamed Message."""
        return MessageEvents(request)

    def error_body(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return an error; ``body`` is the upstream's own, returned as it is when it is Anthropic's."""
        return orjson.dumps(error_object(message, status=status, code=code, body=body))

    def chat_answer(self, native: Mapping[str, Any]) -> dict[str, Any]:
        """Return a Message as a chat completion."""
        return chat_answer(native)

    def reader(self) -> MessageReader:
        """Return the reader of a native stream."""
        return MessageReader()


def _client_request(native: dict[str, Any], *, counting: bool) -> ClientRequest:
    stream = native.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise refused("true or false", "stream")
    native_only: NativeOnly = []
    chat = chat_request(native, native_only, needs_limit=not counting)
    return ClientRequest(
        chat=chat,
        stream=bool(stream) and not counting,
        native=native,
        native_only=native_only[0] if native_only else None,
    )
