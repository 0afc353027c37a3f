"""ResponseMemory: what the Responses given to one attempt said, so that later requests can go on from them by id.

The Responses API lets a client send only what is new, with ``previous_response_id`` or references to items. A chat
completion needs all of it, so the proxy keeps the last conversations of each attempt, as JSON, within bounds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agl.proxy.dialects.base import ClientRequest, RecordedExchange
from agl.proxy.dialects.responses.answers import items_of_response, output_items, response_id
from agl.proxy.dialects.responses.history import items_from_messages
from agl.proxy.dialects.responses.items import reasoning_text, referenced_id, unknown_item
from agl.proxy.dialects.responses.nodes import object_of, text_of
from agl.proxy.dialects.responses.requests import client_request, items_of, unknown_response
from agl.proxy.refusal import CallRefusedError
from agl.types import attributes as key

MAX_RESPONSES = 64
MAX_BYTES = 4 * 1024 * 1024
"""Of one attempt's conversations; 16K tokens of text are about 64 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    conversation: bytes
    """All items up to and with the Response's output: JSON, without the brackets of the list."""
    output_ids: tuple[str, ...]
    """Of the items of the Response's own output."""


class ResponseMemory:
    """Remembers the Responses of one attempt.

    Args:
        max_responses: the oldest beyond so many are forgotten.
        max_bytes: the oldest are forgotten until the rest is no larger; the newest is always kept.
    """

    def __init__(self, *, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._bytes = 0
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._items: dict[str, bytes] = {}
        """item id -> JSON, of all outputs remembered"""

    @property
    def num_bytes(self) -> int:
        """Of the conversations that are remembered."""
        return self._bytes

    def resolved(self, request: ClientRequest) -> ClientRequest:
        """Return the request with the messages of what it goes on from; itself if it refers to nothing.

        Reasoning that a client sends back without its text gets it again. Instructions are not carried over from one
        Response to the next. ``native`` stays what the client sent, and a reference to what is not known here makes
        the request ``native_only``: its provider may know it.
        """
        native = request.native
        previous, own = native.get("previous_response_id"), items_of(native)
        if previous is None and not any(map(self._is_reference, own)):
            return request
        try:
            earlier = b"" if previous is None else self._conversation(previous)
            items = [*orjson.loads(b"[" + earlier + b"]"), *self._dereferenced(own)]
        except CallRefusedError as error:
            return replace(request, native_only=error)
        return client_request(native, items=items)

    def remember(self, request: ClientRequest, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep a request and its canonical answer, unless the client said ``store: false``.

        Returns the attributes by which the call's span can be restored, none where the call was not kept.
        """
        native = request.native
        if native.get("store") is False:
            return {}
        previous = native.get("previous_response_id")
        try:
            earlier = b"" if previous is None else self._conversation(previous)
            own = self._dereferenced(items_of(native))
        except CallRefusedError:
            return {}  # forgotten while the model answered: a Response without its beginning is no use
        name = response_id(request, answer.get("id"))
        self._keep(name, earlier, own, output_items(request, answer))
        return {key.MEMORY_ID: name} | (
            {key.INSTRUCTIONS: True} if text_of(native.get("instructions")) else {}
        )

    def lacks(self, request: ClientRequest) -> bool:
        """Return whether the request refers to what is not known here, but may be recorded."""
        native = request.native
        previous = native.get("previous_response_id")
        if isinstance(previous, str) and previous not in self._remembered:
            return True
        ids = (referenced_id(item) for item in items_of(native))
        return any(isinstance(item_id, str) and item_id not in self._items for item_id in ids)

    def restore(self, request: ClientRequest, exchanges: Sequence[RecordedExchange]) -> None:
        """Keep recorded Responses of the attempt, above all the one that the request goes on from."""
        wanted = request.native.get("previous_response_id")
        for exchange in sorted(exchanges, key=lambda exchange: exchange.name == wanted):
            if exchange.name not in self._remembered:
                has_instructions = exchange.attributes.get(key.INSTRUCTIONS) is True
                own = items_from_messages(exchange.messages[1 if has_instructions else 0 :])
                self._keep(exchange.name, b"", own, items_of_response(exchange.name, exchange.answer))

    def _keep(
        self, name: str, earlier: bytes, own: Sequence[object], output: Sequence[Mapping[str, Any]]
    ) -> None:
        known = {item["id"]: orjson.dumps(item) for item in output if isinstance(item.get("id"), str)}
        said = [part for part in (earlier, *map(orjson.dumps, [*own, *output])) if part]
        conversation = b",".join(said)
        self._forget(name)
        self._remembered[name] = _Remembered(conversation=conversation, output_ids=tuple(known))
        self._items.update(known)
        self._bytes += len(conversation)
        while len(self._remembered) > 1 and (
            self._bytes > self._max_bytes or len(self._remembered) > self._max_responses
        ):
            self._forget(next(iter(self._remembered)))

    def _forget(self, name: str) -> None:
        forgotten = self._remembered.pop(name, None)
        if forgotten is not None:
            self._bytes -= len(forgotten.conversation)
            for item_id in forgotten.output_ids:
                self._items.pop(item_id, None)

    def _conversation(self, name: object) -> bytes:
        remembered = self._remembered.get(name) if isinstance(name, str) else None
        if remembered is None:
            raise unknown_response(name)
        return remembered.conversation

    def _is_reference(self, item: object) -> bool:
        return referenced_id(item) is not None or self._is_stripped(item)

    def _is_stripped(self, item: object) -> bool:
        """Whether this is remembered reasoning whose text the client left out."""
        node = object_of(item)
        return (
            node.get("type") == "reasoning"
            and text_of(node.get("id")) in self._items
            and not reasoning_text(node)
        )

    def _dereferenced(self, items: Sequence[object]) -> list[object]:
        """Return the items with references replaced by what they refer to."""
        whole: list[object] = []
        for index, item in enumerate(items):
            item_id = referenced_id(item)
            if item_id is None:
                whole.append(
                    orjson.loads(self._items[object_of(item)["id"]]) if self._is_stripped(item) else item
                )
                continue
            known = self._items.get(item_id) if isinstance(item_id, str) else None
            if known is None:
                raise unknown_item(item_id, f"input[{index}]")
            whole.append(orjson.loads(known))
        return whole
