"""The dialect of OpenAI's chat completions: ``POST /v1/chat/completions``. The canonical call is nearly this format.

Source: https://platform.openai.com/docs/api-reference/chat, and vLLM's names for exact ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.proxy.canonical import choices_of
from agl.proxy.dialects.base import ClientRequest
from agl.proxy.json_body import object_from_body
from agl.proxy.refusal import CallRefusedError
from agl.proxy.refusal import error_body as worded_error_body
from agl.types.attributes import UPSTREAM

MAX_CHOICES = 128  # OpenAI's limit of n
DONE = b"data: [DONE]\n\n"
_OF_RECORD = ("policy_version", "policy_version_end", UPSTREAM)
"""Fields that the record needs and no client asks for."""
_OURS = ("choices", "usage", "prompt_token_ids", *_OF_RECORD)
"""Fields of a chunk or answer that are not the same on all chunks of a stream."""


class OpenAIChat:
    """Reads and words chat completions."""

    @property
    def name(self) -> str:
        """The dialect's name."""
        return "openai.chat"

    def request(self, body: bytes) -> ClientRequest:
        """Read a client's body. What this module does not know is passed on.

        Raises:
            CallRefusedError: 400, for what is not JSON or not such a request.
        """
        native = object_from_body(body)
        check_common(native)
        messages = native.get("messages")
        if not isinstance(messages, list) or not messages:
            raise refused("messages: a list with at least one message", param="messages")
        if not all(isinstance(message, dict) for message in cast("list[object]", messages)):
            raise refused("messages: each is an object with role and content", param="messages")
        chat = {name: value for name, value in native.items() if name not in ("stream", "stream_options")}
        return ClientRequest(chat=chat, stream=native.get("stream") is True, native=native)

    def answer(self, request: ClientRequest, answer: Mapping[str, Any]) -> bytes:
        """Return the answer as the client asked for it: without ids, logprobs and version it did not ask for."""
        shown = {name: value for name, value in answer.items() if name not in _OF_RECORD}
        keep_ids, keep_logprobs = _kept(request)
        if not keep_ids:
            shown.pop("prompt_token_ids", None)
        if not (keep_ids and keep_logprobs):
            shown["choices"] = [
                _shown_choice(choice, keep_ids, keep_logprobs) for choice in choices_of(answer)
            ]
        return orjson.dumps(shown)

    def events(self, request: ClientRequest) -> ChatEvents:
        """Return the writer of a streamed answer."""
        return ChatEvents(request)

    def error_body(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return OpenAI's error; an upstream's own, unchanged, where it is an object."""
        return openai_error(message, status=status, code=code, body=body)


class ChatEvents:
    """Words the chunks of one streamed answer.

    Whatever ends a choice is held back for ``end``: agents take a finish reason for the end of the answer.
    """

    def __init__(self, request: ClientRequest) -> None:
        self._keep_ids, self._keep_logprobs = _kept(request)
        self._with_usage = asks_for_usage(request)
        self._begun = False

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the chunk as the client asked for it; nothing for one that adds nothing for the client."""
        given = cast("list[dict[str, Any]]", chunk.get("choices") or [])
        choices = [shown for choice in given if (shown := self._shown(choice)) is not None]
        if not choices:
            return b""
        shown = self._frame(chunk)
        if not self._begun and self._keep_ids and "prompt_token_ids" in chunk:
            shown["prompt_token_ids"] = chunk["prompt_token_ids"]
        self._begun = True
        return _event(shown | {"choices": choices})

    def end(self, answer: Mapping[str, Any]) -> bytes:
        """Return each choice's finish, the usage if it was asked for, and ``[DONE]``."""
        frame = self._frame(answer) | {"object": "chat.completion.chunk"}
        choices = choices_of(answer)
        events = [] if self._begun else [self.chunk(chunk_of_answer(answer))]
        for choice in choices:
            finish = {name: value for name, value in choice.items() if name not in ("message", "token_ids")}
            events.append(_event(frame | {"choices": [finish | {"delta": {}, "logprobs": None}]}))
        if self._with_usage:
            events.append(_event(frame | {"choices": [], "usage": answer.get("usage")}))
        events.append(DONE)
        return b"".join(events)

    def error(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return the event that OpenAI's clients raise as an error."""
        return b"data: " + openai_error(message, status=status, code=code, body=body) + b"\n\n"

    def _frame(self, told: Mapping[str, Any]) -> dict[str, Any]:
        frame = {name: value for name, value in told.items() if name not in _OURS}
        if self._with_usage:
            frame["usage"] = None  # as OpenAI does on all chunks but the last
        return frame

    def _shown(self, choice: Mapping[str, Any]) -> dict[str, Any] | None:
        """A chunk's choice without its end; None if nothing is left."""
        delta = choice.get("delta")
        shown = {**choice, "delta": delta, "finish_reason": None}
        ids = shown.pop("token_ids", None)
        if self._keep_ids:
            shown["token_ids"] = ids
        if not self._keep_logprobs:
            shown["logprobs"] = None
        shown.pop("stop_reason", None)
        says = any(value not in (None, "", []) for value in cast("dict[str, Any]", delta or {}).values())
        return shown if says or (self._keep_ids and ids) or self._keeps_logprobs(choice) else None

    def _keeps_logprobs(self, choice: Mapping[str, Any]) -> bool:
        return self._keep_logprobs and bool(choice.get("logprobs"))


def chunk_of_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole answer as one canonical chunk, without its end."""
    choices: list[dict[str, Any]] = []
    for choice in choices_of(answer):
        delta = dict(choice["message"])
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        said = {name: value for name, value in choice.items() if name != "message"}
        choices.append(said | {"delta": delta, "finish_reason": None})
    return {**answer, "object": "chat.completion.chunk", "choices": choices}


def check_common(native: Mapping[str, Any]) -> None:
    """Check the fields that all of OpenAI's calls have in common.

    Raises:
        CallRefusedError: 400, naming the field.
    """
    if not isinstance(native.get("model"), str) or not native["model"]:
        raise refused("model: the name of a model, as text", param="model")
    count = native.get("n")
    if count is not None and (type(count) is not int or not 1 <= count <= MAX_CHOICES):
        raise refused(f"n: a whole number from 1 to {MAX_CHOICES}", param="n", code="invalid_value")
    if native.get("stream") not in (None, True, False):
        raise refused("stream: true or false", param="stream")
    options = native.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise refused("stream_options: an object", param="stream_options")


def asks_for_usage(request: ClientRequest) -> bool:
    """Whether a stream is to end with the usage."""
    options = cast("dict[str, object]", request.native.get("stream_options") or {})
    return bool(options.get("include_usage"))


def openai_error(message: str, *, status: int, code: str, body: object = None) -> bytes:
    """Return OpenAI's error object; an upstream's own, unchanged, where it is one."""
    if isinstance(body, Mapping):
        return orjson.dumps(body)
    return worded_error_body(message, status=status, code=code)


def refused(message: str, *, code: str = "invalid_type", param: str | None = None) -> CallRefusedError:
    """Return the refusal of a wrong request."""
    return CallRefusedError(message, status=400, code=code, param=param)


def _kept(request: ClientRequest) -> tuple[bool, bool]:
    """Whether the client asked for ids, and for logprobs."""
    return bool(request.native.get("return_token_ids")), bool(request.native.get("logprobs"))


def _shown_choice(choice: Mapping[str, Any], keep_ids: bool, keep_logprobs: bool) -> dict[str, Any]:  # noqa: FBT001
    shown = dict(choice)
    if not keep_ids:
        shown.pop("token_ids", None)
    if not keep_logprobs and "logprobs" in shown:
        shown["logprobs"] = None  # OpenAI's answers name the field also when it was not asked for
    return shown


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
