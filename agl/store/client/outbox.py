"""Spans on their way: what callers add while a request is under way goes out together in the next one (group commit).

Each caller is answered when its own spans are acknowledged, and a caller's bad span fails nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from agl.errors import StoreError, StoreUnavailableError
from agl.store import wire
from agl.store.client.bodies import MAX_BODY_BYTES, STORED_SPANS, decoded, joined, parts_within, span_json
from agl.types import Span

MAX_REQUESTS = 2
"""Requests under way at once: one is on the wire while the server writes the other."""


@dataclass(slots=True, kw_only=True)
class _Packet:
    """One caller's spans."""

    spans: Sequence[Span]
    texts: Sequence[bytes]
    size: int
    done: asyncio.Future[list[Span]]

    def answer(self, stored: list[Span]) -> None:
        """Give the caller its spans, if it is still there."""
        if not self.done.done():
            self.done.set_result(stored)

    def fail(self, error: StoreError) -> None:
        """Give the caller its error, if it still waits."""
        if not self.done.done():
            self.done.set_exception(error)


class Outbox:
    """Sends spans for any number of callers.

    Args:
        post: sends a JSON list of spans and returns the answer's body.
        spawn: runs a coroutine in the background.
    """

    def __init__(
        self,
        post: Callable[[bytes], Awaitable[bytes]],
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._post = post
        self._spawn = spawn
        self._waiting: deque[_Packet] = deque()
        self._running = 0
        self._scheduled = False

    async def add(self, spans: Sequence[Span]) -> list[Span]:
        """Return the spans as they are stored, once they are.

        What fits one request (``wire.MAX_BATCH`` spans, ``bodies.MAX_BODY_BYTES``) is stored all or none. More goes in
        several, in order: then a refusal names the first part refused, and the parts before it are stored.
        """
        texts = [span_json(span) for span in spans]
        stored: list[Span] = []
        for part in parts_within(texts):
            packet = _Packet(
                spans=spans[part],
                texts=texts[part],
                size=sum(map(len, texts[part])),
                done=asyncio.get_running_loop().create_future(),
            )
            self._waiting.append(packet)
            self._schedule()
            stored += await packet.done
        return stored

    def _schedule(self) -> None:
        """Start after the loop's present round, so that all who add in it go together."""
        if not self._scheduled and self._running < MAX_REQUESTS:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        while self._running < MAX_REQUESTS and (batch := self._next()):
            self._running += 1
            self._spawn(self._send(batch))

    def _next(self) -> list[_Packet]:
        """The packets of the next request; those whose callers have left stay behind."""
        batch: list[_Packet] = []
        count = size = 0
        while self._waiting:
            packet = self._waiting[0]
            count, size = count + len(packet.spans), size + packet.size
            if batch and (count > wire.MAX_BATCH or size > MAX_BODY_BYTES):
                break
            self._waiting.popleft()
            if packet.done.done():
                count, size = count - len(packet.spans), size - packet.size
            else:
                batch.append(packet)
        return batch

    async def _send(self, batch: list[_Packet]) -> None:
        try:
            await self._deliver(batch)
        finally:
            self._running -= 1
            for packet in batch:
                packet.fail(StoreUnavailableError("the store was closed before it had the spans"))
            if self._waiting:
                self._schedule()

    async def _deliver(self, batch: list[_Packet]) -> None:
        sent = [span for packet in batch for span in packet.spans]
        try:
            body = await self._post(joined([text for packet in batch for text in packet.texts]))
            stored = iter(_answered(body, sent))
        except StoreError as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailableError):
                for packet in batch:
                    await self._deliver([packet])
                return
            for packet in batch:
                packet.fail(type(error)(*error.args))
            return
        for packet in batch:
            packet.answer([next(stored) for _ in packet.spans])


def _answered(body: bytes, sent: list[Span]) -> list[Span]:
    answer = decoded(STORED_SPANS, body)
    if len(answer.sequence_ids) != len(sent):
        raise StoreError(f"the store answered {len(answer.sequence_ids)} spans to {len(sent)}")
    return answer.spans(sent)
