"""The dialect of OpenAI's Responses.

Translated to a chat completion and back; its parts are in ``responses/``. A request that goes on from an earlier
Response is only complete after ``ResponseMemory.resolved``.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.responses.answers import response_object
from agl.proxy.dialects.responses.events import ResponseEvents
from agl.proxy.dialects.responses.native import ResponseReader, chat_answer_from_native
from agl.proxy.dialects.responses.requests import chat_from_native
from agl.proxy.refusal import CallRefusedError
from agl.proxy.refusal import error_body as worded_error_body


class OpenAIResponses:
    """Reads requests of the Responses API and words their answers. Satisfies ``NativeDialect``."""

    @property
    def name(self) -> str:
        """The dialect's name."""
        return "openai.responses"

    def request(self, body: bytes) -> ClientRequest:
        """Read a request that any upstream can answer.

        Raises:
            CallRefusedError: 400, naming the field; also for what a chat completion cannot do, such as built-in tools.
        """
        native = _native(body)
        chat = chat_from_native(native)
        return ClientRequest(chat=chat, stream=native.get("stream") is True, native=native)

    def native_request(self, body: bytes) -> ClientRequest:
        """Read a request that goes to a Responses provider unchanged; ``chat`` is what of it the record can hold.

        Raises:
            CallRefusedError: 400, it is not such a request.
        """
        native = _native(body)
        chat = chat_from_native(native, lenient=True)
        return ClientRequest(chat=chat, stream=native.get("stream") is True, native=native)

    def answer(self, request: ClientRequest, answer: Mapping[str, Any]) -> bytes:
        """Return the Response as JSON."""
        return orjson.dumps(response_object(request, answer))

    def events(self, request: ClientRequest) -> ResponseEvents:
        """Return the writer of the events of a streamed Response."""
        return ResponseEvents(request)

    def error_body(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return OpenAI's error; an upstream's own, unchanged, where it is an object."""
        if isinstance(body, Mapping):
            return orjson.dumps(body)
        return worded_error_body(message, status=status, code=code)

    def chat_answer(self, native: Mapping[str, Any]) -> dict[str, Any]:
        """Return a provider's Response as the canonical answer."""
        return chat_answer_from_native(native)

    def reader(self) -> ResponseReader:
        """Return the reader of a provider's event stream."""
        return ResponseReader()


def _native(body: bytes) -> dict[str, Any]:
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        message = f"the request body is not JSON: {error}"
        raise CallRefusedError(message, status=400, code="invalid_json") from error
    if not isinstance(parsed, dict):
        raise CallRefusedError("the request body is not a JSON object", status=400, code="invalid_type")
    return cast("dict[str, Any]", parsed)
