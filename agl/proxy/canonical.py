"""The canonical call: what of it the pipeline itself reads and changes. ``agl.proxy.dialects.base`` says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, cast

import orjson

from agl.errors import InferenceError

_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_MAX_TOKENS = 2**40
"""Of one call. What says more is wrong, and the sums of such counts could not be written."""
_LIMIT_OF_RESPONSES = "max_output_tokens"
_UNREADABLE = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
_DEFAULT_TEMPERATURE = (
    1.0  # OpenAI's documented default; servers that read a model's own default would differ silently
)


def upstream_chat(chat: Mapping[str, Any], sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the upstream is asked: the agent's request under the forced ``sampling``, with ids and logprobs.

    The temperature is always said, so that the record holds the one that was used. A limit of tokens that is forced
    under one of its names replaces the agent's under any.
    """
    if _LIMIT_OF_RESPONSES in sampling:
        others = {name: value for name, value in sampling.items() if name != _LIMIT_OF_RESPONSES}
        sampling = {"max_completion_tokens": sampling[_LIMIT_OF_RESPONSES], **others}
    asked = {**chat, **sampling}
    if any(name in sampling for name in _TOKEN_LIMITS):
        for name in _TOKEN_LIMITS:
            if name not in sampling:
                asked.pop(name, None)
    if "prompt" in asked and "max_completion_tokens" in asked:  # which text completions do not know
        asked["max_tokens"] = asked.pop("max_completion_tokens")
    if asked.get("temperature") is None:
        asked["temperature"] = _DEFAULT_TEMPERATURE
    asked["logprobs"] = True
    asked["return_token_ids"] = True
    return asked


def choices_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answer's choices in the order of their index."""
    choices = cast("list[dict[str, Any]]", answer["choices"])
    return sorted(choices, key=lambda choice: int(choice.get("index", 0))) if len(choices) > 1 else choices


class ReadingAnswer:
    """Within the block an answer is read, recorded and worded: one of another shape is the model server's failure.

    A class, for a generator costs as much as the block of a stream's chunk.

    Raises:
        InferenceError: 502, the answer has a field that cannot be read, or is nested too deep to be written.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell of what could not be read."""
        if isinstance(error, _UNREADABLE):
            message = f"the model server's answer is not a chat completion: {type(error).__name__}: {error}"
            raise InferenceError(message, status=502) from error


def checked_answer(answer: object) -> dict[str, Any]:
    """Return the upstream's answer if it has the shape of a chat completion.

    Raises:
        InferenceError: 502, it has not.
    """
    choices = cast("dict[str, object]", answer).get("choices") if isinstance(answer, dict) else None
    well_formed = isinstance(choices, list) and all(
        isinstance(choice, dict) and isinstance(cast("dict[str, object]", choice).get("message"), dict)
        for choice in cast("list[object]", choices)
    )
    if not choices or not well_formed:
        raise InferenceError("the model server's answer is not a chat completion", status=502)
    return cast("dict[str, Any]", answer)


def token_count(told: object, name: str) -> int | None:
    """Return the number of tokens that a usage has under a name, None where there is none that can be."""
    is_object = type(told) is dict or isinstance(told, Mapping)  # the first is quick
    count = cast("Mapping[str, object]", told).get(name) if is_object else None
    return count if type(count) is int and 0 <= count <= _MAX_TOKENS else None


def upstream_error(body: object) -> Mapping[str, Any] | None:
    """Return an upstream's error body if it is an object that can be written again, else None."""
    if not isinstance(body, Mapping):
        return None
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:
        return None
    return cast("Mapping[str, Any]", body)
