"""SpanWriter: makes spans durable, many concurrent calls in one write (group commit).

A write begins as soon as the one before has returned; what came meanwhile goes together.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from agl.errors import StoreError, StoreUnavailableError
from agl.store.base import SpanLog
from agl.types import Span

_Writing = asyncio.Task[list[StoreError | None]]
STORE_SECONDS = 600.0
"""Longest wait for a write: as long as the OpenAI and Anthropic clients wait for an answer."""
LAST_SECONDS = 0.5
"""For spans that are not written when the proxy stops."""
_MAX_BATCH = 256  # spans; keeps one write of long calls in the low megabytes


@dataclass(slots=True)
class _Batch:
    """Spans that are written together, and who waits for each to be told what became of it."""

    spans: list[Span] = field(default_factory=list[Span])
    waiting: list[asyncio.Future[StoreError | None]] = field(
        default_factory=list["asyncio.Future[StoreError | None]"]
    )


class SpanWriter:
    """Writes spans to a store and says for each when it is there."""

    def __init__(self, store: SpanLog, *, timeout_seconds: float = STORE_SECONDS) -> None:
        self._store = store
        self._timeout_seconds = timeout_seconds
        self._until: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._open: _Batch | None = None
        self._last: _Writing | None = None

    async def add(self, span: Span) -> None:
        """Return when the span is durable. Cancelling the caller does not take the span back.

        Raises:
            StoreUnavailableError: the store failed or did not answer in time; whether the span is there is unknown.
            StoreError: the store refused the span.
        """
        batch = self._open
        if batch is None or len(batch.spans) >= _MAX_BATCH:
            batch = self._open = _Batch()
            self._last = asyncio.create_task(self._write(batch, after=self._last))
            self._last.add_done_callback(partial(_tell, batch))
        written = asyncio.get_running_loop().create_future()
        batch.spans.append(span)
        batch.waiting.append(written)
        error = await written
        if error is not None:
            raise error

    def hurry(self, seconds: float = LAST_SECONDS) -> None:
        """Give all that is and will be under way so long and no longer: the proxy stops."""
        self._until = asyncio.get_running_loop().time() + seconds
        if self._limit is not None:
            self._limit.reschedule(self._until)

    async def drain(self) -> None:
        """Wait until all that was given is written or failed."""
        while self._last is not None and not self._last.done():
            await asyncio.wait({self._last})

    async def _write(self, batch: _Batch, *, after: _Writing | None) -> list[StoreError | None]:
        """Write a batch and return what became of each of its spans."""
        if after is not None and not after.done():
            await asyncio.wait({after})
        if self._open is batch:
            self._open = None
        try:
            await self._store_all(batch.spans)
        except StoreUnavailableError as error:
            return [error] * len(batch.spans)
        except StoreError as error:
            if len(batch.spans) == 1:
                return [error]
            return [await self._store_alone(span) for span in batch.spans]
        return [None] * len(batch.spans)

    async def _store_alone(self, span: Span) -> StoreError | None:
        """One refused span takes none of its neighbours with it."""
        try:
            await self._store_all([span])
        except StoreError as error:
            return error
        return None

    async def _store_all(self, spans: list[Span]) -> None:
        until = self._until or asyncio.get_running_loop().time() + self._timeout_seconds
        try:
            async with asyncio.timeout_at(until) as self._limit:
                await self._store.add_many_spans(spans)
        except TimeoutError as error:
            message = f"the store did not take {len(spans)} spans within {self._timeout_seconds:g} s"
            if self._until is not None:
                message = f"the store did not take {len(spans)} spans before the proxy stopped"
            raise StoreUnavailableError(message) from error
        finally:
            self._limit = None


def _tell(batch: _Batch, task: _Writing) -> None:
    """Tell those who wait. A future each, for that costs a third of a shield around the task."""
    for position, written in enumerate(batch.waiting):
        if written.done():  # its caller was cancelled
            continue
        if task.cancelled():
            written.cancel()
        elif error := task.exception():
            written.set_exception(error)
        else:
            written.set_result(task.result()[position])
