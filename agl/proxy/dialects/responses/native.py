"""Response objects and event streams of a Responses provider -> canonical answers and chunks, for the record.

Items that a chat completion has no place for (web searches, ...) are left out; a provider gives no token ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agl.proxy.dialects.responses.items import reasoning_text
from agl.proxy.dialects.responses.nodes import object_of, objects_of, text_of

_FINISH_OF_REASON = {"max_output_tokens": "length", "content_filter": "content_filter"}
_LIFECYCLE = ("response.created", "response.queued", "response.in_progress")
_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}


def chat_answer_from_native(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Response as a ``chat.completion``."""
    message, logprobs = _message(native)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs} if logprobs else None,
        "finish_reason": _finish_reason(native, has_calls="tool_calls" in message),
    }
    answer: dict[str, Any] = {
        "id": native.get("id"),
        "object": "chat.completion",
        "created": int(native.get("created_at") or 0),
        "model": native.get("model"),
        "choices": [choice],
        "usage": chat_usage(native.get("usage")),
    }
    if isinstance(native.get("service_tier"), str):
        answer["service_tier"] = native["service_tier"]
    return answer


def chat_usage(given: object) -> dict[str, Any] | None:
    """Return the usage under the names of chat completions."""
    usage = object_of(given)
    if not usage:
        return None
    prompt, sampled = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": usage.get("total_tokens") or prompt + sampled,
        "prompt_tokens_details": dict(object_of(usage.get("input_tokens_details"))),
        "completion_tokens_details": dict(object_of(usage.get("output_tokens_details"))),
    }


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
        """Return the canonical chunks of one event."""
        kind = event or str(data.get("type"))
        if kind in _LIFECYCLE:
            return self._begin(object_of(data.get("response")))
        if kind in _TERMINAL:
            return self._end(object_of(data.get("response")))
        if kind == "error":
            return [self._chunk({}, finish_reason="error")]
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
        chunks.append(self._chunk({}, finish_reason=reason))
        if answer["usage"] is not None:
            chunks.append({**self._head, "choices": [], "usage": answer["usage"]})
        return chunks

    def _delta(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        place = data.get("output_index") or 0
        if kind == "response.output_text.delta":
            return self._counted("content", place, data)
        if kind == "response.refusal.delta":
            return self._counted("refusal", place, data)
        if kind == "response.reasoning_text.delta":
            return self._counted("reasoning_content", place, data)
        if kind == "response.output_item.added":
            return self._call_begun(place, object_of(data.get("item")))
        if kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
            return self._arguments(kind, place, str(data.get("delta") or ""))
        if kind == "response.output_item.done":
            return self._rest(place, object_of(data.get("item")))
        return {}

    def _counted(self, name: str, place: int, data: Mapping[str, Any]) -> dict[str, Any]:
        text = str(data.get("delta") or "")
        self._lengths[place, name] = self._lengths.get((place, name), 0) + len(text)
        return {name: text} if text else {}

    def _call_begun(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        if item.get("type") not in _ARGUMENTS or place in self._calls:
            return {}
        index = self._calls[place] = len(self._calls)
        call = _tool_call(item)
        self._lengths[place, "arguments"] = len(item.get(_ARGUMENTS[str(item["type"])]) or "")
        return {"tool_calls": [{"index": index, **call}]}

    def _arguments(self, kind: str, place: int, text: str) -> dict[str, Any]:
        if not text or place not in self._calls:
            return {}
        self._lengths[place, "arguments"] += len(text)
        named = {"custom": {"input": text}} if "custom" in kind else {"function": {"arguments": text}}
        return {"tool_calls": [{"index": self._calls[place], **named}]}

    def _rest(self, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a finished item has beyond its deltas; some providers send none."""
        kind = item.get("type")
        if kind in _ARGUMENTS:
            begun = self._call_begun(place, item)
            rest = str(item.get(_ARGUMENTS[str(kind)]) or "")[self._lengths[place, "arguments"] :]
            return begun or self._arguments(str(kind), place, rest)
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
        "created": int(response.get("created_at") or 0),
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
    calls = [_tool_call(item) for item in items if item.get("type") in _ARGUMENTS]
    content = "".join(text_of(part.get("text")) for part in texts) if texts else None
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if refusals:
        message["refusal"] = "".join(refusals)
    if any(reasonings):
        message["reasoning_content"] = "".join(reasonings)
    if calls:
        message["tool_calls"] = calls
    return message, [_logprob(entry) for part in texts for entry in objects_of(part.get("logprobs"))]


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
    if status in ("failed", "cancelled"):
        return "error"
    if status == "incomplete":
        return _FINISH_OF_REASON.get(str(object_of(native.get("incomplete_details")).get("reason")), "length")
    return "tool_calls" if has_calls else "stop"
