"""The dialect of OpenAI's chat completions: reads the agent's body, words the upstream's request and the answer.

Source: https://platform.openai.com/docs/api-reference/chat/create, and vLLM's names for exact ids.
Another wire format is another module beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.errors import InferenceError
from agl.proxy.refusal import CallRefusedError

_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_DEFAULT_TEMPERATURE = (
    1.0  # OpenAI's documented default; servers that read a model's own default would differ silently
)
_MAX_CHOICES = 128  # OpenAI's limit of n


def chat_from_body(body: bytes) -> dict[str, Any]:
    """Return the request in an HTTP body.

    Raises:
        CallRefusedError: 400, for what is not JSON, not such a request, or asks for a stream.
    """
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _refused(f"the request body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(parsed, dict):
        raise _refused("the request body is not a JSON object", code="invalid_type")
    chat = cast("dict[str, Any]", parsed)
    _check(chat)
    return chat


def upstream_chat(chat: Mapping[str, Any], sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the upstream is asked: the agent's request under the forced ``sampling``, with ids and logprobs.

    The temperature is always said, so that the record holds the one that was used.
    """
    asked = {**chat, **sampling}
    if any(name in sampling for name in _TOKEN_LIMITS):
        for name in _TOKEN_LIMITS:
            if name not in sampling:
                asked.pop(name, None)
    if asked.get("temperature") is None:
        asked["temperature"] = _DEFAULT_TEMPERATURE
    asked.pop("stream_options", None)
    asked["stream"] = False
    asked["logprobs"] = True
    asked["return_token_ids"] = True
    return asked


def agent_answer(answer: Mapping[str, Any], chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer as the agent asked for it: without ids, logprobs and version that it did not ask for."""
    shown = dict(answer)
    shown.pop("policy_version", None)
    keep_ids, keep_logprobs = bool(chat.get("return_token_ids")), bool(chat.get("logprobs"))
    if not keep_ids:
        shown.pop("prompt_token_ids", None)
    if not (keep_ids and keep_logprobs):
        shown["choices"] = [_shown_choice(choice, keep_ids, keep_logprobs) for choice in choices_of(answer)]
    return shown


def choices_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answer's choices in the order of their index."""
    choices = cast("list[dict[str, Any]]", answer["choices"])
    return sorted(choices, key=lambda choice: int(choice.get("index", 0))) if len(choices) > 1 else choices


def checked_answer(answer: object) -> dict[str, Any]:
    """Return the upstream's answer if it has the shape of a chat completion.

    Raises:
        InferenceError: 502, it has not.
    """
    choices = cast("dict[str, object]", answer).get("choices") if isinstance(answer, dict) else None
    well_formed = isinstance(choices, list) and all(
        isinstance(choice, dict) and "message" in choice for choice in cast("list[object]", choices)
    )
    if not choices or not well_formed:
        raise InferenceError("the model server's answer is not a chat completion", status=502)
    return cast("dict[str, Any]", answer)


def _shown_choice(choice: Mapping[str, Any], keep_ids: bool, keep_logprobs: bool) -> dict[str, Any]:  # noqa: FBT001
    shown = dict(choice)
    if not keep_ids:
        shown.pop("token_ids", None)
    if not keep_logprobs and "logprobs" in shown:
        shown["logprobs"] = None  # OpenAI's answers name the field also when it was not asked for
    return shown


def _check(chat: Mapping[str, Any]) -> None:
    if not isinstance(chat.get("model"), str) or not chat["model"]:
        raise _refused("model: the name of a model, as text", code="invalid_type", param="model")
    messages = chat.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _refused("messages: a list with at least one message", code="invalid_type", param="messages")
    if not all(isinstance(message, dict) for message in cast("list[object]", messages)):
        raise _refused(
            "messages: each is an object with role and content", code="invalid_type", param="messages"
        )
    count = chat.get("n")
    if count is not None and (type(count) is not int or not 1 <= count <= _MAX_CHOICES):
        raise _refused(f"n: a whole number from 1 to {_MAX_CHOICES}", code="invalid_value", param="n")
    if chat.get("stream"):
        message = (
            "stream: streaming is not supported yet by this version of agl's proxy; ask with stream: false"
        )
        raise _refused(message, code="unsupported_value", param="stream")


def _refused(message: str, *, code: str, param: str | None = None) -> CallRefusedError:
    return CallRefusedError(message, status=400, code=code, param=param)
