"""Pages: opaque cursors for the stores, and iterators over all pages for their callers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import orjson

from agl.errors import InvalidRequestError
from agl.store.base import LightningStore
from agl.types import Attempt, AttemptQuery, Page, Rollout, RolloutQuery, Run, RunQuery, Span, SpanQuery
from agl.types.query import ListQuery

T = TypeVar("T")
Query = TypeVar("Query", bound=ListQuery)


def cursor_text(order: str, key: Sequence[Any]) -> str:
    """Return the cursor behind the row whose sort key is ``key`` in a list of this order (``created_at asc``)."""
    return base64.urlsafe_b64encode(orjson.dumps([order, *key])).decode("ascii").rstrip("=")


def cursor_key(cursor: str, order: str, length: int) -> list[Any]:
    """Return the sort key of ``length`` values that ``cursor_text`` made a cursor of.

    Raises:
        InvalidRequestError: the text is no cursor, or one of a list in another order.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        parts = orjson.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, binascii.Error) as error:
        raise InvalidRequestError(
            f"cursor {cursor!r} is not one of this store's: start without a cursor"
        ) from error
    if not isinstance(parts, list) or len(parts) != length + 1 or parts[0] != order:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidRequestError(f"cursor {cursor!r} continues a list in another order than {order!r}")
    return parts[1:]  # pyright: ignore[reportUnknownVariableType]


async def iter_rollouts(store: LightningStore, query: RolloutQuery | None = None) -> AsyncIterator[Rollout]:
    """Yield all rollouts of a query, page by page; ``limit`` is the size of a page."""
    async for rollout in _walk(store.query_rollouts, query or RolloutQuery()):
        yield rollout


async def iter_attempts(store: LightningStore, query: AttemptQuery) -> AsyncIterator[Attempt]:
    """Yield all attempts of a query, page by page; ``limit`` is the size of a page."""
    async for attempt in _walk(store.query_attempts, query):
        yield attempt


async def iter_runs(store: LightningStore, query: RunQuery | None = None) -> AsyncIterator[Run]:
    """Yield all runs of a query, page by page; ``limit`` is the size of a page."""
    async for run in _walk(store.query_runs, query or RunQuery()):
        yield run


async def iter_spans(store: LightningStore, query: SpanQuery) -> AsyncIterator[Span]:
    """Yield all spans of a query, page by page; ``limit`` is the size of a page."""
    async for span in _walk(store.query_spans, query):
        yield span


async def _walk(list_page: Callable[[Query], Awaitable[Page[T]]], query: Query) -> AsyncIterator[T]:
    while True:
        page = await list_page(query)
        for item in page.items:
            yield item
        if page.next_cursor is None:
            return
        query = query.model_copy(update={"cursor": page.next_cursor})
