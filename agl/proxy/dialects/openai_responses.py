"""The dialect of OpenAI's Responses.

Translated to a chat completion and back; its parts are in ``responses/``. A request that goes on from an earlier
Response is complete for chat upstreams after ``ResponseMemory.resolved``.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.openai_chat import openai_error
from agl.proxy.dialects.responses.answers import response_object
from agl.proxy.dialects.responses.events import ResponseEvents
from agl.proxy.dialects.responses.native import ResponseReader, chat_answer_from_native
from agl.proxy.dialects.responses.requests import client_request
from agl.proxy.json_body import object_from_body


class OpenAIResponses:
    """Reads requests of the Responses API and words their answers. Satisfies ``NativeDialect``."""

    @property
    def name(self) -> str:
        """The dialect's name."""
        return "openai.responses"

    def request(self, body: bytes) -> ClientRequest:
        """Read a client's body. What refers to earlier Responses is native only until ``ResponseMemory`` resolves it.

        Raises:
            CallRefusedError: 400, naming the field that is wrong.
        """
        return client_request(object_from_body(body))

    def answer(self, request: ClientRequest, answer: Mapping[str, Any]) -> bytes:
        """Return the Response as JSON."""
        return orjson.dumps(response_object(request, answer))

    def events(self, request: ClientRequest) -> ResponseEvents:
        """Return the writer of the events of a streamed Response."""
        return ResponseEvents(request)

    def error_body(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return OpenAI's error; an upstream's own, unchanged, where it is an object."""
        return openai_error(message, status=status, code=code, body=body)

    def chat_answer(self, native: Mapping[str, Any]) -> dict[str, Any]:
        """Return a provider's Response as the canonical answer."""
        return chat_answer_from_native(native)

    def reader(self) -> ResponseReader:
        """Return the reader of a provider's event stream."""
        return ResponseReader()
