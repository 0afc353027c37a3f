"""Recalls: what a dialect's memory has lost of an attempt's calls, read back from their spans.

Memories are bounded and end with the process; the record in the store is neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.errors import NotFoundError
from agl.proxy.dialects.base import ClientRequest, Memory, RecordedExchange
from agl.proxy.recorded import answer_from_span
from agl.proxy.routes import Address
from agl.store.base import SpanLog
from agl.types import Span, SpanQuery
from agl.types import attributes as key

_PAGE = 100


async def recall(store: SpanLog, memory: Memory, request: ClientRequest, address: Address) -> None:
    """Give the memory back what the request refers to, as far as it is recorded.

    Raises:
        StoreError: the record cannot be read.
    """
    if not memory.lacks(request):
        return
    query = SpanQuery(
        rollout_id=address.rollout_id,
        attempt_id=address.attempt_id,
        name_prefix=key.CHAT_SPAN_PREFIX,
        limit=_PAGE,
    )
    exchanges: list[RecordedExchange] = []
    cursor: str | None = None
    while True:
        try:
            page = await store.query_spans(query.model_copy(update={"cursor": cursor}))
        except NotFoundError:
            return
        exchanges += [made for span in page.items if (made := _exchange(span)) is not None]
        cursor = page.next_cursor
        if cursor is None:
            break
    memory.restore(request, exchanges)


def _exchange(span: Span) -> RecordedExchange | None:
    """The exchange of a call that a memory kept, None for another."""
    said = span.attributes
    if key.MEMORY_ID not in said:
        return None
    try:
        messages = cast("list[Mapping[str, Any]]", orjson.loads(said[key.INPUT_MESSAGES]))
        answer = answer_from_span(span)
    except (ValueError, TypeError, AttributeError, KeyError):  # not as the proxy writes it
        return None
    if answer is None:
        return None
    return RecordedExchange(name=said[key.MEMORY_ID], attributes=said, messages=messages, answer=answer)
