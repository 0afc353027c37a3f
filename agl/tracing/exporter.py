"""Spans on their way into the store: collected from any thread, written in batches, never in the agent's way.

A span that does not arrive is counted by cause and logged as an error. Nothing here raises into the agent.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from opentelemetry.sdk.trace import ReadableSpan

from agl.errors import ConfigError, StoreUnavailableError
from agl.store.address import last_seconds
from agl.store.base import SpanLog
from agl.tracing.conversion import span_from_otel
from agl.types import Span

log = logging.getLogger(__name__)

MAX_DELAY_SECONDS = 5.0
"""Longest pause between two tries of an unavailable store."""


@dataclass(slots=True)
class ExportCounts:
    """Where the spans of a process went: stored, or lost by cause."""

    stored: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])


class StoreSpanExporter:
    """The way of ended spans into the store. An async context manager, bound to the loop that enters it.

    Args:
        store: takes the spans.
        max_queue: spans that may wait; further ones are dropped and counted.
        batch_size: the most spans of one write.
        interval_seconds: a span waits no longer than this for its write to start.
        call_timeout_seconds: a write without an answer for so long counts as an unavailable store.
        retry_seconds: how long a batch is offered to an unavailable store before it is dropped and counted; as long
            as clients of a store wait for it.
        retry_delay_seconds: the first pause between two tries; each next one doubles it.
    """

    def __init__(
        self,
        store: SpanLog,
        *,
        max_queue: int = 20_000,
        batch_size: int = 512,
        interval_seconds: float = 1.0,
        call_timeout_seconds: float = 30.0,
        retry_seconds: float = 3600.0,
        retry_delay_seconds: float = 0.1,
    ) -> None:
        if max_queue < 1 or batch_size < 1:
            raise ConfigError(
                f"max_queue and batch_size must be at least 1, not {max_queue} and {batch_size}"
            )
        self.sink_id = secrets.token_hex(8)
        self.counts = ExportCounts()
        self._store = store
        self._max_queue = max_queue
        self._batch_size = batch_size
        self._interval_seconds = interval_seconds
        self._call_timeout_seconds = call_timeout_seconds
        self._retry_seconds = retry_seconds
        self._retry_delay_seconds = retry_delay_seconds
        self._queue: deque[tuple[ReadableSpan | Span, str, str]] = deque()
        self._lock = threading.Lock()
        self._taken = 0
        self._settled = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StoreSpanExporter:
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._writer = asyncio.create_task(self._write_forever(), name="agl-span-writer")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def put(self, span: ReadableSpan | Span, rollout_id: str, attempt_id: str) -> None:
        """Take one ended span, from any thread; when it cannot be kept it is counted and logged."""
        with self._lock:
            open_, waiting = self._loop is not None, len(self._queue) + 1
            room = waiting <= self._max_queue
            if open_ and room:
                self._queue.append((span, rollout_id, attempt_id))
                self._taken += 1
        if not open_:
            self._lose("exporter closed", [f"{span.name} of rollout {rollout_id} attempt {attempt_id}"])
        elif not room:
            self._lose("queue full", [f"{span.name} of rollout {rollout_id} attempt {attempt_id}"])
        elif waiting == 1 or waiting == self._batch_size:
            self._ring(full=waiting == self._batch_size)

    async def flush(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until every span taken so far is stored or counted as lost; False when time ran out first."""
        with self._lock:
            target = self._taken
        if self._settled >= target or self._loop is None:
            return self._settled >= target
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((target, done))
        self._wake.set()
        await asyncio.wait((done,), timeout=timeout_seconds)
        return done.done()

    async def close(self, *, timeout_seconds: float = 1.0) -> None:
        """Write what is left, for so long at most; what then still waits is counted as lost."""
        writer = self._writer
        if writer is None:
            return
        try:
            await self.flush(timeout_seconds=last_seconds(self._store, timeout_seconds))
        finally:
            with self._lock:
                self._loop = None
                left = list(self._queue)
                self._queue.clear()
            self._writer = None
            writer.cancel()
            await asyncio.wait((writer,))
            if self._timer is not None:
                self._timer.cancel()
            if left:
                self._lose(
                    "not written before close", [f"{span.name} of rollout {rid}" for span, rid, _ in left]
                )
            self._settle(len(left))

    def _ring(self, *, full: bool) -> None:
        loop = self._loop
        if threading.get_ident() == self._loop_thread:
            self._schedule(full=full)
        elif loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: self._schedule(full=full))

    def _schedule(self, *, full: bool) -> None:
        if full:
            self._wake.set()
        elif self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._interval_seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._wake.set()

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._next_batch():
                try:
                    await self._write(self._converted(batch))
                except asyncio.CancelledError:
                    self._lose(
                        "not written before close",
                        [f"{span.name} of rollout {rid}" for span, rid, _ in batch],
                    )
                    raise
                finally:
                    self._settle(len(batch))

    def _next_batch(self) -> list[tuple[ReadableSpan | Span, str, str]]:
        with self._lock:
            return [self._queue.popleft() for _ in range(min(self._batch_size, len(self._queue)))]

    def _settle(self, count: int) -> None:
        self._settled += count
        still: list[tuple[int, asyncio.Future[None]]] = []
        for target, done in self._waiting:
            if done.done():
                continue
            if target <= self._settled:
                done.set_result(None)
            else:
                still.append((target, done))
        self._waiting = still

    def _converted(self, batch: Sequence[tuple[ReadableSpan | Span, str, str]]) -> list[Span]:
        spans: list[Span] = []
        for span, rollout_id, attempt_id in batch:
            try:
                made = span if isinstance(span, Span) else span_from_otel(span, rollout_id, attempt_id)
                spans.append(made)
            except Exception as error:  # noqa: BLE001 - the boundary of a span: recorded as lost
                self._lose(type(error).__name__, [f"{span.name} of rollout {rollout_id}"], error)
        return spans

    async def _write(self, spans: Sequence[Span]) -> None:
        """Store the spans; a refused batch is split until only the spans at fault are lost."""
        if not spans:
            return
        try:
            await self._offer(spans)
        except StoreUnavailableError as error:
            self._lose("store unavailable", _names(spans), error)
        except Exception as error:  # noqa: BLE001 - the boundary of span export: recorded as lost
            for part in _parts(spans):
                await self._write(part)
            if len(spans) == 1:
                self._lose(type(error).__name__, _names(spans), error)
        else:
            self.counts.stored += len(spans)

    async def _offer(self, spans: Sequence[Span]) -> None:
        loop = asyncio.get_running_loop()
        deadline, delay = loop.time() + self._retry_seconds, self._retry_delay_seconds
        while True:
            try:
                async with asyncio.timeout(self._call_timeout_seconds):
                    await self._store.add_many_spans(spans)
            except (StoreUnavailableError, TimeoutError) as error:
                if loop.time() + delay > deadline:
                    raise StoreUnavailableError(
                        f"the store took no spans for {self._retry_seconds:g} s: {str(error) or 'no answer'}"
                    ) from error
                log.warning(
                    "the store takes no spans (%s); trying again in %.1f s", str(error) or "no answer", delay
                )
            else:
                return
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, MAX_DELAY_SECONDS)

    def _lose(self, cause: str, names: Sequence[str], error: Exception | None = None) -> None:
        """Count lost spans; log the first of a cause, then each time their number has doubled."""
        with self._lock:
            before = self.counts.lost[cause]
            self.counts.lost[cause] = before + len(names)
        if before == 0 or error is not None or (before + len(names)).bit_length() > before.bit_length():
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            log.error(
                "%d spans lost so far (%s): %s%s",
                before + len(names),
                cause,
                shown,
                f": {error}" if error else "",
            )


def _names(spans: Sequence[Span]) -> list[str]:
    return [f"{span.name} of rollout {span.rollout_id} attempt {span.attempt_id}" for span in spans]


def _parts(spans: Sequence[Span]) -> list[list[Span]]:
    """Split by attempt, and what is of one attempt into single spans; nothing for a single span."""
    if len(spans) == 1:
        return []
    by_attempt = [list(group) for _, group in groupby(sorted(spans, key=_attempt), key=_attempt)]
    return by_attempt if len(by_attempt) > 1 else [[span] for span in spans]


def _attempt(span: Span) -> tuple[str, str]:
    return span.rollout_id or "", span.attempt_id or ""
