"""Text completions of an HTTP server as canonical chat completions, for requests with a ``prompt``. Pure.

Source: https://platform.openai.com/docs/api-reference/completions, and vLLM's names for the exact ids, which text
completions have on the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

Json = dict[str, Any]


def completions_request(request: Mapping[str, Any]) -> Json:
    """Return the body for ``/completions``: there ``logprobs`` is a number of alternatives."""
    asked = dict(request)
    alternatives = asked.pop("top_logprobs", None)
    if asked.pop("logprobs", None):
        asked["logprobs"] = max(int(alternatives or 0), 1)  # for 0 some servers give none
    return asked


def chat_from_completion(native: Mapping[str, Any]) -> Json:
    """Return a ``text_completion`` as a ``chat.completion``."""
    answer = _framed(native, "chat.completion")
    answer["choices"] = [_choice(choice) | {"message": _message(choice)} for choice in _choices(native)]
    return answer


def chunk_from_completion(native: Mapping[str, Any]) -> Json:
    """Return a chunk of a streamed text completion as a ``chat.completion.chunk``."""
    chunk = _framed(native, "chat.completion.chunk")
    chunk["choices"] = [
        _choice(choice) | {"delta": {"content": choice.get("text") or ""}} for choice in _choices(native)
    ]
    return chunk


def _message(choice: Mapping[str, Any]) -> Json | None:
    """The message of a choice; one without text is no choice of a text completion."""
    return {"role": "assistant", "content": choice["text"] or ""} if "text" in choice else None


def _framed(native: Mapping[str, Any], kind: str) -> Json:
    framed = {name: value for name, value in native.items() if name not in ("choices", "object")}
    framed["object"] = kind
    for choice in _choices(native):
        if choice.get("prompt_token_ids") is not None:
            framed.setdefault("prompt_token_ids", choice["prompt_token_ids"])
    return framed


def _choices(native: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    choices: object = native.get("choices")
    if not isinstance(choices, list):
        return []
    return [cast("Json", choice) for choice in cast("list[Any]", choices) if isinstance(choice, dict)]


def _choice(choice: Mapping[str, Any]) -> Json:
    left_out = ("text", "logprobs", "prompt_token_ids", "prompt_logprobs")
    canonical = {name: value for name, value in choice.items() if name not in left_out}
    canonical["logprobs"] = _logprobs(choice.get("logprobs"))
    return canonical


def _logprobs(given: object) -> Json | None:
    if not isinstance(given, dict):
        return None
    columns = cast("Mapping[str, Any]", given)
    tokens: list[str] = columns.get("tokens") or []
    logprobs: list[float | None] = columns.get("token_logprobs") or []
    tops: list[Mapping[str, float] | None] = columns.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(logprobs) == len(tops):
        return None
    return {"content": [_entry(*row) for row in zip(tokens, logprobs, tops, strict=True)]}


def _entry(token: str, logprob: float | None, top: Mapping[str, float] | None) -> Json:
    alternatives = [
        {"token": other, "logprob": value, "bytes": list(other.encode())}
        for other, value in sorted((top or {}).items(), key=lambda item: -item[1])
    ]
    return {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": alternatives}
