"""Canonical chunks -> the event stream of a Response.

Items appear in the order in which the model begins them. Text and reasoning end when the next item begins; function
calls stay open to the end of the stream, because servers may interleave the arguments of parallel calls.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import orjson

from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.responses.answers import (
    ItemStatus,
    call_item,
    fallback_call_id,
    finished_response,
    first_choice,
    function_calls,
    is_whole,
    item_id,
    logprob_entries,
    message_item,
    provider_items,
    reasoning_item,
    reasoning_of,
    reasoning_part,
    refusal_part,
    response_frame,
    text_part,
)
from agl.proxy.dialects.responses.native import delta_of_message
from agl.proxy.dialects.responses.nodes import object_of, objects_of, text_of
from agl.proxy.dialects.responses.requests import asks_for_logprobs
from agl.proxy.refusal import error_object

_PartKind = Literal["output_text", "refusal", "reasoning_text"]
_EVENT_OF_PART = {
    "output_text": "response.output_text",
    "refusal": "response.refusal",
    "reasoning_text": "response.reasoning_text",
}
_RATE_LIMITED = 429


@dataclass(slots=True)
class _Part:
    """A part of a message or of a reasoning."""

    kind: _PartKind
    content_index: int
    pieces: list[str] = field(default_factory=list[str])
    logprobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    annotations: list[Any] = field(default_factory=list[Any])

    def worded(self) -> dict[str, Any]:
        text = "".join(self.pieces)
        if self.kind == "output_text":
            return text_part(text, self.logprobs, self.annotations)
        return refusal_part(text) if self.kind == "refusal" else reasoning_part(text)


@dataclass(slots=True)
class _Said:
    """A message or reasoning of the stream."""

    kind: Literal["message", "reasoning"]
    item_id: str
    output_index: int
    parts: list[_Part] = field(default_factory=list[_Part])
    status: ItemStatus = "in_progress"

    def worded(self) -> dict[str, Any]:
        word = message_item if self.kind == "message" else reasoning_item
        return word(self.item_id, [part.worded() for part in self.parts], status=self.status)


@dataclass(slots=True)
class _Call:
    """A function call of the stream."""

    item_id: str
    output_index: int
    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list[str])
    status: ItemStatus = "in_progress"

    def worded(self) -> dict[str, Any]:
        return call_item(self.item_id, self.call_id, self.name, "".join(self.pieces), status=self.status)


@dataclass(slots=True)
class _Whole:
    """An item that comes at once."""

    item: Mapping[str, Any]
    status: ItemStatus = "completed"

    def worded(self) -> dict[str, Any]:
        return dict(self.item)


class ResponseEvents:
    """Words one streamed answer."""

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._with_logprobs = asks_for_logprobs(request.native)
        self._sequence_number = 0
        self._frame: dict[str, Any] | None = None
        self._items: list[_Said | _Call | _Whole] = []
        self._calls: dict[int, _Call] = {}
        self._open: _Said | None = None
        self._waiting_logprobs: list[dict[str, Any]] = []
        self._out: list[bytes] = []

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the events that a canonical chunk becomes."""
        self._begin(chunk)
        choice = first_choice(chunk)
        if choice:
            self._delta(object_of(choice.get("delta")), choice)
        return self._sent()

    def end(self, answer: Mapping[str, Any]) -> bytes:
        """Return what ends the open items and the Response; the last event is the terminal one."""
        frame = self._begin(answer)
        if not self._items:
            self._whole(first_choice(answer))
        last: ItemStatus = "completed" if is_whole(answer) else "incomplete"
        self._end_said("completed" if self._items[-1] is not self._open else last)
        for call in self._calls.values():
            self._end_call(call, "completed" if self._items[-1] is not call else last)
        response = finished_response(frame, [item.worded() for item in self._items], answer)
        self._event(f"response.{response['status']}", response=response)
        return self._sent()

    def error(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return the ``error`` event and, when the Response has begun, its failure.

        The event has the error also in the place where OpenAI's clients look for it in any stream and then raise.
        """
        error = _worded_error(message, status=status, code=code, body=body)
        flat = {name: error.get(name) for name in ("code", "message", "param")}
        self._event("error", **flat, error=error)
        if self._frame is not None:
            cause = "rate_limit_exceeded" if status == _RATE_LIMITED else "server_error"
            for item in self._items:
                item.status = "incomplete" if item.status == "in_progress" else item.status
            response = {
                **self._frame,
                "status": "failed",
                "error": {"code": cause, "message": str(error.get("message"))},
                "output": [item.worded() for item in self._items],
            }
            self._event("response.failed", response=response)
        return self._sent()

    def _begin(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return the Response as it began; the first chunk begins it."""
        if self._frame is None:
            self._frame = response_frame(
                self._request,
                canonical_id=said.get("id"),
                created=said.get("created"),
                model=said.get("model"),
            )
            self._event("response.created", response=self._frame)
            self._event("response.in_progress", response=self._frame)
        return self._frame

    def _delta(self, delta: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        """Word what one chunk adds to the answer."""
        reasoning, calls = reasoning_of(delta), function_calls(delta)
        if self._with_logprobs and not reasoning and not calls:
            self._waiting_logprobs += logprob_entries(choice)
        if reasoning:
            self._say("reasoning", "reasoning_text", reasoning)
        content, refusal = text_of(delta.get("content")), text_of(delta.get("refusal"))
        if content:
            if self._with_logprobs and (reasoning or calls):
                self._waiting_logprobs += logprob_entries(choice)
            self._say("message", "output_text", content)
        if delta.get("annotations"):
            self._part("message", "output_text").annotations.extend(objects_of(delta["annotations"]))
        if refusal:
            self._say("message", "refusal", refusal)
        for call in calls:
            self._call_delta(call)

    def _whole(self, choice: Mapping[str, Any]) -> None:
        """Word an answer of which no chunk came: a provider's own items as they are, or the message."""
        message = object_of(choice.get("message"))
        for item in provider_items(message):
            self._whole_item(item)
        if not self._items:
            self._delta(delta_of_message(message), choice)
        if not self._items:
            self._part("message", "output_text")

    def _whole_item(self, item: Mapping[str, Any]) -> None:
        self._end_said("completed")
        index = len(self._items)
        kind, began = item.get("type"), dict(item)
        if kind == "message":
            began["content"] = []
        elif kind == "function_call":
            began["arguments"] = ""
        self._items.append(_Whole(item))
        self._event("response.output_item.added", output_index=index, item=began)
        place = {"item_id": item.get("id"), "output_index": index}
        if kind == "function_call":
            self._event("response.function_call_arguments.delta", **place, delta=item.get("arguments"))
            self._event("response.function_call_arguments.done", **place, arguments=item.get("arguments"))
        for content_index, part in enumerate(objects_of(item.get("content")) if kind == "message" else []):
            self._whole_part({**place, "content_index": content_index}, part)
        self._event("response.output_item.done", output_index=index, item=item)

    def _whole_part(self, place: Mapping[str, Any], part: Mapping[str, Any]) -> None:
        name = "refusal" if part.get("type") == "refusal" else "text"
        said = text_of(part.get(name))
        more: dict[str, Any] = {} if name == "refusal" else {"logprobs": part.get("logprobs") or []}
        event = _EVENT_OF_PART["refusal" if name == "refusal" else "output_text"]
        self._event("response.content_part.added", **place, part={**part, name: ""})
        self._event(f"{event}.delta", **place, delta=said, **more)
        self._event(f"{event}.done", **place, **{name: said}, **more)
        self._event("response.content_part.done", **place, part=part)

    def _say(self, kind: Literal["message", "reasoning"], part_kind: _PartKind, text: str) -> None:
        part = self._part(kind, part_kind)
        part.pieces.append(text)
        fields: dict[str, Any] = {"delta": text}
        if part_kind == "output_text":
            fields["logprobs"], self._waiting_logprobs = self._waiting_logprobs, []
            part.logprobs += fields["logprobs"]
        self._event(f"{_EVENT_OF_PART[part_kind]}.delta", **self._place(part), **fields)

    def _part(self, kind: Literal["message", "reasoning"], part_kind: _PartKind) -> _Part:
        """Return the open part of this kind; one of another kind ends, and so does an item."""
        item = self._open
        if item is None or item.kind != kind:
            self._end_said("completed")
            index = len(self._items)
            prefix = "msg" if kind == "message" else "rs"
            item = self._open = _Said(
                kind=kind, item_id=item_id(prefix, self._mark(), index), output_index=index
            )
            self._items.append(item)
            self._event("response.output_item.added", output_index=index, item=item.worded())
        if not item.parts or item.parts[-1].kind != part_kind:
            self._end_part()
            item.parts.append(_Part(kind=part_kind, content_index=len(item.parts)))
            part = item.parts[-1]
            self._event("response.content_part.added", **self._place(part), part=part.worded())
        return item.parts[-1]

    def _end_part(self) -> None:
        item = self._open
        if item is None or not item.parts:
            return
        part = item.parts[-1]
        worded = part.worded()
        done: dict[str, Any] = {"refusal" if part.kind == "refusal" else "text": "".join(part.pieces)}
        if part.kind == "output_text":
            done["logprobs"] = part.logprobs
        self._event(f"{_EVENT_OF_PART[part.kind]}.done", **self._place(part), **done)
        self._event("response.content_part.done", **self._place(part), part=worded)

    def _end_said(self, status: ItemStatus) -> None:
        item = self._open
        if item is None:
            return
        if item.parts[-1].kind == "output_text":
            item.parts[-1].logprobs += self._waiting_logprobs
        self._waiting_logprobs = []
        self._end_part()
        item.status, self._open = status, None
        self._event("response.output_item.done", output_index=item.output_index, item=item.worded())

    def _call_delta(self, delta: Mapping[str, Any]) -> None:
        """Word what comes of a call; a server that gives no index gives whole calls, or goes on with the last one."""
        index = delta.get("index")
        if not isinstance(index, int):
            index = len(self._calls) if delta.get("id") or not self._calls else max(self._calls)
        function = cast("Mapping[str, Any]", delta["function"])
        call = self._calls.get(index)
        if call is None:
            self._end_said("completed")
            place = len(self._items)
            call = self._calls[index] = _Call(
                item_id=item_id("fc", self._mark(), place),
                output_index=place,
                call_id=delta.get("id") or fallback_call_id(self._mark(), index),
                name=text_of(function.get("name")),
            )
            self._items.append(call)
            self._event("response.output_item.added", output_index=place, item=call.worded())
        elif text_of(function.get("name")) != call.name:  # some servers repeat it, some give it in pieces
            call.name += text_of(function.get("name"))
        arguments = text_of(function.get("arguments"))
        if arguments:
            call.pieces.append(arguments)
            place_of_call = {"item_id": call.item_id, "output_index": call.output_index}
            self._event("response.function_call_arguments.delta", **place_of_call, delta=arguments)

    def _end_call(self, call: _Call, status: ItemStatus) -> None:
        call.status = status
        place = {"item_id": call.item_id, "output_index": call.output_index}
        self._event("response.function_call_arguments.done", **place, arguments="".join(call.pieces))
        self._event("response.output_item.done", output_index=call.output_index, item=call.worded())

    def _mark(self) -> str:
        return str((self._frame or {})["id"]).removeprefix("resp_")

    def _place(self, part: _Part) -> dict[str, Any]:
        item = cast("_Said", self._open)
        return {
            "item_id": item.item_id,
            "output_index": item.output_index,
            "content_index": part.content_index,
        }

    def _event(self, kind: str, **fields: Any) -> None:
        data = {"type": kind, "sequence_number": self._sequence_number, **fields}
        self._sequence_number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(data)))

    def _sent(self) -> bytes:
        sent = b"".join(self._out)
        self._out.clear()
        return sent


def _worded_error(message: str, *, status: int, code: str, body: object = None) -> dict[str, Any]:
    """Return OpenAI's error object; the upstream's own where it gave one."""
    own = object_of(object_of(body).get("error"))
    return {**error_object(message, status=status, code=code)["error"], **own}
