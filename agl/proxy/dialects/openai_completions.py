"""The dialect of OpenAI's legacy text completions: ``POST /v1/completions``, with a text in place of messages.

One prompt a call: a list of several prompts and prompts given as token ids are refused, for each call is one record.

Source: https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from agl.proxy.canonical import choices_of
from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.openai_chat import (
    DONE,
    asks_for_usage,
    check_common,
    openai_error,
    refused,
)
from agl.proxy.json_body import object_from_body

_DEFAULT_MAX_TOKENS = 16  # of OpenAI's text completions; chat completions have none
_MAX_LOGPROBS = 20  # the most that chat completions can be asked for
_READ = ("best_of", "echo", "logprobs", "stream", "stream_options")
_FRAME = ("id", "created", "model", "system_fingerprint", "service_tier")


class OpenAICompletions:
    """Reads and words text completions."""

    @property
    def name(self) -> str:
        """The dialect's name."""
        return "openai.completions"

    def request(self, body: bytes) -> ClientRequest:
        """Read a client's body. What this module does not know is passed on.

        Raises:
            CallRefusedError: 400, for what is not JSON, not such a request, or has no place in a record.
        """
        native = object_from_body(body)
        check_common(native)
        chat = {name: value for name, value in native.items() if name not in _READ}
        chat["prompt"] = _prompt(native.get("prompt"))
        _refuse_unsupported(native)
        num_logprobs = _num_logprobs(native.get("logprobs"))
        if num_logprobs:
            chat["top_logprobs"] = num_logprobs
        if chat.get("max_tokens") is None:
            chat["max_tokens"] = _DEFAULT_MAX_TOKENS
        return ClientRequest(chat=chat, stream=native.get("stream") is True, native=native)

    def answer(self, request: ClientRequest, answer: Mapping[str, Any]) -> bytes:
        """Return the ``text_completion`` object."""
        writer = _Wording(request)
        worded = _frame(answer) | {
            "choices": [
                writer.choice(choice, choice["message"], choice.get("finish_reason"))
                for choice in choices_of(answer)
            ],
            "usage": answer.get("usage"),
        }
        if writer.keep_ids and "prompt_token_ids" in answer:
            worded["prompt_token_ids"] = answer["prompt_token_ids"]
        return orjson.dumps(worded)

    def events(self, request: ClientRequest) -> CompletionEvents:
        """Return the writer of a streamed answer."""
        return CompletionEvents(request)

    def error_body(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return OpenAI's error; an upstream's own, unchanged, where it is an object."""
        return openai_error(message, status=status, code=code, body=body)


class CompletionEvents:
    """Words the chunks of one streamed answer; whatever ends a choice is held back for ``end``."""

    def __init__(self, request: ClientRequest) -> None:
        self._wording = _Wording(request)
        self._with_usage = asks_for_usage(request)
        self._begun = False

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the chunk's text."""
        choices = [
            worded
            for choice in cast("list[dict[str, Any]]", chunk.get("choices") or [])
            if self._says(worded := self._wording.choice(choice, choice.get("delta") or {}, None))
        ]
        if not choices:
            return b""
        self._begun = True
        return _event(self._frame(chunk) | {"choices": choices})

    def end(self, answer: Mapping[str, Any]) -> bytes:
        """Return each choice's finish, the usage if it was asked for, and ``[DONE]``."""
        frame = self._frame(answer)
        events: list[bytes] = []
        for choice in choices_of(answer):
            said: Mapping[str, Any] = {} if self._begun else choice["message"]
            told = {"index": choice.get("index", 0)} if self._begun else choice
            worded = self._wording.choice(told, said, choice.get("finish_reason"))
            events.append(_event(frame | {"choices": [worded]}))
        if self._with_usage:
            events.append(_event(frame | {"choices": [], "usage": answer.get("usage")}))
        events.append(DONE)
        return b"".join(events)

    def error(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return the event that OpenAI's clients raise as an error."""
        return b"data: " + openai_error(message, status=status, code=code, body=body) + b"\n\n"

    def _frame(self, told: Mapping[str, Any]) -> dict[str, Any]:
        return _frame(told) | ({"usage": None} if self._with_usage else {})

    @staticmethod
    def _says(worded: Mapping[str, Any]) -> bool:
        return bool(worded["text"] or worded["logprobs"] or worded.get("token_ids"))


class _Wording:
    """Words choices; counts the characters of each, which logprobs have as offsets."""

    def __init__(self, request: ClientRequest) -> None:
        self.keep_ids = bool(request.native.get("return_token_ids"))
        self._num_logprobs = _num_logprobs(request.native.get("logprobs"))
        self._offsets: dict[int, int] = {}

    def choice(
        self, choice: Mapping[str, Any], said: Mapping[str, Any], finish_reason: object
    ) -> dict[str, Any]:
        index = int(choice.get("index") or 0)
        worded: dict[str, Any] = {
            "index": index,
            "text": said.get("content") or "",
            "logprobs": self._logprobs(index, choice.get("logprobs")),
            "finish_reason": finish_reason,
        }
        if self.keep_ids and choice.get("token_ids") is not None:
            worded["token_ids"] = choice["token_ids"]
        return worded

    def _logprobs(self, index: int, given: object) -> dict[str, Any] | None:
        content = cast("dict[str, Any]", given).get("content") if isinstance(given, dict) else None
        if self._num_logprobs is None or not content:
            return None
        offset = self._offsets.get(index, 0)
        offsets: list[int] = []
        for entry in cast("Sequence[Mapping[str, Any]]", content):
            offsets.append(offset)
            offset += len(entry["token"])
        self._offsets[index] = offset
        return {
            "tokens": [entry["token"] for entry in content],
            "token_logprobs": [entry["logprob"] for entry in content],
            "top_logprobs": [
                {top["token"]: top["logprob"] for top in entry.get("top_logprobs") or ()} for entry in content
            ],
            "text_offset": offsets,
        }


def _prompt(prompt: object) -> str:
    """The one text that is to be continued."""
    if isinstance(prompt, list) and len(cast("list[object]", prompt)) == 1:
        prompt = cast("list[object]", prompt)[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    message = (
        "prompt: one text; ask for each of several prompts in a call of its own, and for token ids as text"
    )
    raise refused(message, param="prompt")


def _num_logprobs(given: object) -> int | None:
    """How many alternatives of each token are asked for, None when no logprobs are."""
    if given is None or given is False:
        return None
    if type(given) is not int or not 0 <= given <= _MAX_LOGPROBS:
        raise refused(f"logprobs: a whole number from 0 to {_MAX_LOGPROBS}", param="logprobs")
    return given


def _refuse_unsupported(native: Mapping[str, Any]) -> None:
    if native.get("echo"):
        raise refused(
            "echo: the prompt is not repeated in the answer", param="echo", code="unsupported_value"
        )
    best_of = native.get("best_of")
    if best_of is not None and best_of != (native.get("n") or 1):
        message = "best_of: the same as n or left out; every sample is answered and recorded"
        raise refused(message, param="best_of", code="unsupported_value")


def _frame(told: Mapping[str, Any]) -> dict[str, Any]:
    frame = {name: told[name] for name in _FRAME if name in told}
    if isinstance(frame.get("id"), str):
        frame["id"] = "cmpl-" + frame["id"].removeprefix("chatcmpl-").removeprefix("cmpl-")
    return frame | {"object": "text_completion"}


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
