"""ResponseMemory: what the Responses given to one attempt said, so that later requests can go on from them by id.

The Responses API lets a client send only what is new, with ``previous_response_id`` or references to items. A chat
completion needs all of it, so the proxy keeps the last conversations of each attempt, as JSON, within bounds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.responses.answers import output_items, response_id
from agl.proxy.dialects.responses.items import ITEM_REFERENCE, messages_from_items
from agl.proxy.dialects.responses.requests import items_of
from agl.proxy.refusal import CallRefusedError

MAX_RESPONSES = 64
MAX_BYTES = 4 * 1024 * 1024
"""Of one attempt's conversations; 16K tokens of text are about 64 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    conversation: bytes
    """All items up to and with the Response's output: JSON, without the brackets of the list."""
    item_ids: tuple[str, ...]
    """Of the Response's own output."""


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

    def resolved(self, request: ClientRequest) -> ClientRequest:
        """Return the request with the messages of what it goes on from; itself if it refers to nothing.

        ``native`` stays what the client sent. Instructions are not carried over from one Response to the next.

        Raises:
            CallRefusedError: 400 with OpenAI's code ``previous_response_not_found``, or for an unknown item.
        """
        native = request.native
        previous, own = native.get("previous_response_id"), items_of(native)
        if previous is None and not any(map(_referenced_id, own)):
            return request
        earlier = self._conversation(previous) if previous is not None else b""
        items = [*orjson.loads(b"[" + earlier + b"]"), *self._dereferenced(own)]
        chat = {**request.chat, "messages": messages_from_items(native.get("instructions"), items)}
        return replace(request, chat=chat)

    def remember(self, request: ClientRequest, answer: Mapping[str, Any]) -> None:
        """Keep a request and its canonical answer, unless the client said ``store: false``."""
        native = request.native
        if native.get("store") is False:
            return
        previous = native.get("previous_response_id")
        try:
            earlier = self._conversation(previous) if previous is not None else b""
            own = self._dereferenced(items_of(native))
        except CallRefusedError:
            return  # forgotten while the model answered: a Response without its beginning is no use
        output = output_items(request, answer)
        added = orjson.dumps([*own, *output])[1:-1]
        conversation = earlier + b"," + added if earlier else added
        self._forget(response_id(request, answer.get("id")))
        self._remembered[response_id(request, answer.get("id"))] = _Remembered(
            conversation=conversation, item_ids=tuple(item["id"] for item in output)
        )
        self._bytes += len(conversation)
        while len(self._remembered) > 1 and (
            self._bytes > self._max_bytes or len(self._remembered) > self._max_responses
        ):
            self._forget(next(iter(self._remembered)))

    def _forget(self, of_response: str) -> None:
        forgotten = self._remembered.pop(of_response, None)
        if forgotten is not None:
            self._bytes -= len(forgotten.conversation)

    def _conversation(self, of_response: str) -> bytes:
        remembered = self._remembered.get(of_response)
        if remembered is None:
            message = (
                f"Previous response with id '{of_response}' not found. The proxy keeps the last {self._max_responses} "
                "responses of this attempt that were not asked for with store: false; send the conversation as input"
            )
            raise CallRefusedError(
                message, status=400, code="previous_response_not_found", param="previous_response_id"
            )
        return remembered.conversation

    def _dereferenced(self, items: Sequence[object]) -> list[object]:
        """Return the items with references replaced by what they refer to."""
        return [
            item if _referenced_id(item) is None else self._item(str(_referenced_id(item))) for item in items
        ]

    def _item(self, item_id: str) -> object:
        for remembered in reversed(self._remembered.values()):
            if item_id in remembered.item_ids:
                items = cast("list[dict[str, Any]]", orjson.loads(b"[" + remembered.conversation + b"]"))
                return next(item for item in reversed(items) if item.get("id") == item_id)
        message = f"Item with id '{item_id}' not found among the latest responses of this attempt; send the item itself"
        raise CallRefusedError(message, status=400, code="item_not_found", param="input")


def _referenced_id(item: object) -> object:
    """Return the id in a reference to an item, None for any other item."""
    if not isinstance(item, Mapping):
        return None
    item = cast("Mapping[str, Any]", item)
    kind = item.get("type")
    bare = kind is None and "role" not in item
    return item.get("id") if kind == ITEM_REFERENCE or bare else None
