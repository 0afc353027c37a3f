"""Recorded answers: the span of a call -> the answer that it recorded, whole or in chunks. Pure.

What comes back is what was recorded: messages, tool calls, exact ids and logprobs, usage and finish reasons. Spans keep
no text of single tokens; where a client asks for logprobs, a token is named by its id as vLLM does: ``token_id:17``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

from agl.errors import InferenceError
from agl.types import Span
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed

_SHARED = ("id", "created", "model", "policy_version", "policy_version_end")
_DETAILS = "prompt_tokens_details"


def answer_from_span(span: Span) -> dict[str, Any] | None:
    """Return the canonical answer of an answered call, None where the span has none."""
    said = span.attributes
    text = said.get(key.OUTPUT_MESSAGES)
    if span.status.code == "error" or not isinstance(text, str):
        return None
    messages = cast("list[dict[str, Any]]", orjson.loads(text))
    reasons = cast("Sequence[str]", said.get(key.FINISH_REASONS) or ())
    answer: dict[str, Any] = {
        "id": said.get(key.RESPONSE_ID, f"chatcmpl-{span.span_id}"),
        "object": "chat.completion",
        "created": span.start_time_ns // 10**9,
        "model": said.get(key.RESPONSE_MODEL, said.get(key.REQUEST_MODEL)),
        "choices": [
            _choice(said, index, message, reasons[index] if index < len(reasons) else "stop")
            for index, message in enumerate(messages)
        ],
    }
    if key.PROMPT_TOKEN_IDS in said:
        answer["prompt_token_ids"] = ids_from_packed(said[key.PROMPT_TOKEN_IDS])
    for name, attribute in (
        ("policy_version", key.POLICY_VERSION),
        ("policy_version_end", key.POLICY_VERSION_END),
    ):
        if attribute in said:
            answer[name] = said[attribute]
    usage = _usage(said)
    return answer if usage is None else answer | {"usage": usage}


def chunks_from_answer(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answer as a stream's chunks: one for each choice, then the usage."""
    shared = {"object": "chat.completion.chunk"} | {name: answer[name] for name in _SHARED if name in answer}
    first = {"prompt_token_ids": answer["prompt_token_ids"]} if "prompt_token_ids" in answer else {}
    for choice in answer["choices"]:
        delta = dict(choice["message"])
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
        piece = {name: value for name, value in choice.items() if name != "message"} | {"delta": delta}
        yield shared | first | {"choices": [piece]}
        first = {}
    yield shared | {"choices": [], "usage": answer.get("usage")}


class RecordedAnswer:
    """An upstream that gives one recorded answer, whatever it is asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    @property
    def model(self) -> str:
        """The model that answered then."""
        return str(self._answer["model"])

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer."""
        del request
        return self._answer

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the answer in chunks."""
        del request
        for chunk in chunks_from_answer(self._answer):
            yield chunk


def recorded_answer(span: Span) -> RecordedAnswer | None:
    """Return an upstream that answers as the recorded call was answered, None where it was not.

    Raises:
        InferenceError: 502, the span is not as the proxy writes it.
    """
    try:
        answer = answer_from_span(span)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        message = f"the record of call {span.span_id} of rollout {span.rollout_id} cannot be read: {error}"
        raise InferenceError(message, status=502) from error
    return None if answer is None else RecordedAnswer(answer)


def _choice(said: Mapping[str, Any], index: int, message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        "message": message,
        "finish_reason": "stop" if reason == "unknown" else reason,
        "logprobs": None,
    }
    ids_text = said.get(key.of_choice(key.RESPONSE_TOKEN_IDS, index))
    logprobs_text = said.get(key.of_choice(key.RESPONSE_LOGPROBS, index))
    if ids_text is None or logprobs_text is None:
        return choice
    ids, logprobs = ids_from_packed(ids_text), floats_from_packed(logprobs_text)
    content: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]
    return choice | {"token_ids": ids, "logprobs": {"content": content, "refusal": None}}


def _usage(said: Mapping[str, Any]) -> dict[str, Any] | None:
    prompt, sampled = said.get(key.INPUT_TOKENS), said.get(key.OUTPUT_TOKENS)
    if not isinstance(prompt, int) or not isinstance(sampled, int):
        return None
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }
    cached = said.get(key.CACHED_TOKENS)
    return usage if cached is None else usage | {_DETAILS: {"cached_tokens": cached}}
