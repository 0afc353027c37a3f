"""Response objects and event streams of a Responses provider -> canonical answers and chunks, for the record.

A provider gives no token ids. An output that a chat cannot say all of (web searches, ...) is also kept as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agl.errors import InferenceError
from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.responses.answers import BESIDE, output_items
from agl.proxy.dialects.responses.items import reasoning_text
from agl.proxy.dialects.responses.nodes import number_of, object_of, objects_of, text_of
from agl.proxy.refusal import error_object

_FINISH_OF_REASON = {"max_output_tokens": "length", "content_filter": "content_filter"}
_LIFECYCLE = ("response.created", "response.queued", "response.in_progress")
_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_FAILED = ("failed", "cancelled")
_STATUS_OF_CODE = {"server_error": 502, "vector_store_timeout": 504, "rate_limit_exceeded": 429}
"""All other codes of a Response's error say that the request is at fault."""
_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}


_WHOLE = ClientRequest(
    chat={"model": ""}, stream=False, native={"input": "", "include": ["message.output_text.logprobs"]}
)
"""Asks for all that an answer can show."""


def chat_answer_from_native(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Response as a ``chat.completion``.

    Raises:
        InferenceError: the Response has failed; it holds the provider's error.
    """
    if native.get("status") in _FAILED:
        raise provider_error(object_of(native.get("error")))
    message, logprobs = _message(native)
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs} if logprobs else None,
        "finish_reason": _finish_reason(native, has_calls="tool_calls" in message),
    }
    answer: dict[str, Any] = {
        "id": native.get("id"),
        "object": "chat.completion",
        "created": number_of(native.get("created_at")),
        "model": native.get("model"),
        "choices": [choice],
        "usage": chat_usage(native.get("usage")),
    }
    if isinstance(native.get("service_tier"), str):
        answer["service_tier"] = native["service_tier"]
    output = objects_of(native.get("output"))
    if output and _said(output_items(_WHOLE, answer)) != _said(output):
        message[BESIDE] = {"output": output}
    return answer


def chat_usage(given: object) -> dict[str, Any] | None:
    """Return the usage under the names of chat completions."""
    usage = object_of(given)
    if not usage:
        return None
    prompt, sampled = number_of(usage.get("input_tokens")), number_of(usage.get("output_tokens"))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": number_of(usage.get("total_tokens")) or prompt + sampled,
        "prompt_tokens_details": dict(object_of(usage.get("input_tokens_details"))),
        "completion_tokens_details": dict(object_of(usage.get("output_tokens_details"))),
    }


def provider_error(error: Mapping[str, Any]) -> InferenceError:
    """Return the failure that a Response or an event of its stream tells of, with OpenAI's error body."""
    code = text_of(error.get("code")) or "server_error"
    message = text_of(error.get("message")) or "the provider failed and did not say why"
    status = _STATUS_OF_CODE.get(code, 400)
    named = {name: error[name] for name in ("type", "param") if isinstance(error.get(name), str)}
    body = error_object(message, status=status, code=code)
    return InferenceError(message, status=status, body={"error": {**body["error"], **named}})


def delta_of_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the delta of a stream that says the whole message at once."""
    delta = dict(message)
    if message.get("tool_calls"):
        calls = objects_of(message["tool_calls"])
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    return delta


class ResponseReader:
    """Reads a provider's event stream."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._calls: dict[int, int] = {}
        """output index -> index among the tool calls"""
        self._lengths: dict[tuple[int, str], int] = {}
        """(output index, what) -> how many characters came in deltas"""
        self._said = False

    def event(self, event: str, data: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the canonical chunks of one event.

        Raises:
            InferenceError: it tells of the provider's failure.
        """
        kind = event or str(data.get("type"))
        if kind in _LIFECYCLE:
            return self._begin(object_of(data.get("response")))
        if kind in _TERMINAL:
            return self._end(object_of(data.get("response")))
        if kind == "error":
            raise provider_error(object_of(data.get("error")) or {**data, "type": None})
        delta = self._delta(kind, data)
        if not delta:
            return []
        self._said = True
        logprobs = (
            [_logprob(entry) for entry in objects_of(data.get("logprobs"))]
            if kind.endswith("text.delta")
            else []
        )
        return [self._chunk(delta, logprobs=logprobs)]

    def _begin(self, response: Mapping[str, Any]) -> list[dict[str, Any]]:
        if self._head:
            return []
        self._head = _head(response)
        return [self._chunk({"role": "assistant", "content": ""})]

    def _end(self, response: Mapping[str, Any]) -> list[dict[str, Any]]:
        chunks = self._begin(response)
        answer = chat_answer_from_native(response)
        choice = answer["choices"][0]
        if not self._said:
            chunks.append(
                self._chunk(
                    delta_of_message(choice["message"]), logprobs=object_of(choice["logprobs"]).get("content")
                )
            )
        reason = _finish_reason(response, has_calls=bool(self._calls) or "tool_calls" in choice["message"])
        beside = choice["message"].get(BESIDE)
        chunks.append(self._chunk({BESIDE: beside} if beside and self._said else {}, finish_reason=reason))
        if answer["usage"] is not None:
            tier = {"service_tier": answer["service_tier"]} if "service_tier" in answer else {}
            chunks.append({**self._head, **tier, "choices": [], "usage": answer["usage"]})
        return chunks

    def _delta(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        place = number_of(data.get("output_index"))
        if kind == "response.output_text.delta":
            return self._counted("content", place, data)
        if kind == "response.refusal.delta":
            return self._counted("refusal", place, data)
        if kind == "response.reasoning_text.delta":
            return self._counted("reasoning_content", place, data)
        if kind == "response.output_item.added":
            return self._call_begun(place, object_of(data.get("item")))
        if kind == "response.function_call_arguments.delta":
            return self._arguments(place, text_of(data.get("delta")))
        if kind == "response.output_item.done":
            return self._rest(place, object_of(data.get("item")))
        return {}

    def _counted(self, name: str, place: int, data: Mapping[str, Any]) -> dict[str, Any]:
        text = text_of(data.get("delta"))
        self._lengths[place, name] = self._lengths.get((place, name), 0) + len(text)
        return {name: text} if text else {}

    def _call_begun(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        if item.get("type") != "function_call" or place in self._calls:
            return {}
        return self._call(place, item)

    def _call(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        index = self._calls[place] = len(self._calls)
        self._lengths[place, "arguments"] = len(text_of(item.get("arguments")))
        return {"tool_calls": [{"index": index, **_tool_call(item)}]}

    def _arguments(self, place: int, text: str) -> dict[str, Any]:
        if not text or place not in self._calls:
            return {}
        self._lengths[place, "arguments"] += len(text)
        return {"tool_calls": [{"index": self._calls[place], "function": {"arguments": text}}]}

    def _rest(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a finished item has beyond its deltas; some providers send none. A custom call comes whole."""
        kind = text_of(item.get("type"))
        if kind in _ARGUMENTS and place not in self._calls:
            return self._call(place, item)
        if kind in _ARGUMENTS:
            return self._arguments(place, text_of(item.get("arguments"))[self._lengths[place, "arguments"] :])
        if kind not in ("message", "reasoning"):
            return {}
        message, _ = _message({"output": [item]})
        rests = {
            name: message[name][self._lengths.get((place, name), 0) :]
            for name in ("content", "refusal", "reasoning_content")
            if message.get(name)
        }
        return {name: rest for name, rest in rests.items() if rest}

    def _chunk(
        self, delta: Mapping[str, Any], *, finish_reason: str | None = None, logprobs: object = None
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": {"content": logprobs} if logprobs else None,
            "finish_reason": finish_reason,
        }
        return {**self._head, "choices": [choice]}


def _head(response: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": response.get("id"),
        "object": "chat.completion.chunk",
        "created": number_of(response.get("created_at")),
        "model": response.get("model"),
    }


def _message(native: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the assistant's message that the output means, and the logprobs of its text."""
    items = objects_of(native.get("output"))
    parts = [
        part for item in items if item.get("type") == "message" for part in objects_of(item.get("content"))
    ]
    texts = [part for part in parts if part.get("type") == "output_text"]
    refusals = [text_of(part.get("refusal")) for part in parts if part.get("type") == "refusal"]
    reasonings = [reasoning_text(item) or _summary(item) for item in items if item.get("type") == "reasoning"]
    calls = [_tool_call(item) for item in items if text_of(item.get("type")) in _ARGUMENTS]
    text = "".join(text_of(part.get("text")) for part in texts)
    content = text if text or not (calls or refusals) else None  # as streams are put together
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if refusals:
        message["refusal"] = "".join(refusals)
    if any(reasonings):
        message["reasoning_content"] = "".join(reasonings)
    if calls:
        message["tool_calls"] = calls
    return message, [_logprob(entry) for part in texts for entry in objects_of(part.get("logprobs"))]


def _said(value: object) -> object:
    """Return what an output says: without ids, states, and fields that say nothing."""
    if isinstance(value, Mapping):
        node = cast("Mapping[str, object]", value)
        pruned = {name: _said(each) for name, each in node.items() if name not in ("id", "status")}
        return {name: each for name, each in pruned.items() if each not in (None, [], {})}
    if isinstance(value, list):
        return [_said(each) for each in cast("list[object]", value)]
    return value


def _summary(item: Mapping[str, Any]) -> str:
    return "\n\n".join(text_of(part.get("text")) for part in objects_of(item.get("summary")))


def _tool_call(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = "custom" if item.get("type") == "custom_tool_call" else "function"
    name = _ARGUMENTS[str(item["type"])]
    return {
        "id": item.get("call_id"),
        "type": kind,
        kind: {"name": item.get("name"), name: item.get(name) or ""},
    }


def _logprob(entry: Mapping[str, Any]) -> dict[str, Any]:
    def token(of: Mapping[str, Any]) -> dict[str, Any]:
        return {"token": of.get("token"), "logprob": of.get("logprob"), "bytes": of.get("bytes")}

    return {**token(entry), "top_logprobs": [token(other) for other in objects_of(entry.get("top_logprobs"))]}


def _finish_reason(native: Mapping[str, Any], *, has_calls: bool) -> str:
    status = native.get("status")
    if status == "incomplete":
        return _FINISH_OF_REASON.get(str(object_of(native.get("incomplete_details")).get("reason")), "length")
    return "tool_calls" if has_calls else "stop"
