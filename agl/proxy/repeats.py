"""Repeats: a client's second try of a call whose answer it lost gets the first one's answer; nothing is sampled twice.

A repeat shows itself by ``idempotency-key``, or by ``x-stainless-retry-count`` above 0 (OpenAI's clients) with the same
body in the same attempt. Equal bodies without such a mark are two intended calls and stay two. Memory is bounded; the
oldest answered calls are forgotten first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from agl.proxy.refusal import CallRefusedError
from agl.proxy.routes import Address
from agl.types import Span

_MAX_CALLS = 4096
_MAX_BYTES = 16 * 2**20  # of answers; thousands of usual ones, and a client repeats within seconds


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the client is answered."""

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    span_id: str
    """Empty for what is no call."""
    unrecorded: Span | None = None
    """The call's span while it is not in the store; the call must not be answered before it is."""


class CallIdentity(NamedTuple):
    """What tells a repeat from a new call."""

    address: Address
    fingerprint: bytes
    idempotency_key: bytes | None
    retry_count: int


@dataclass(slots=True, eq=False)
class RecentCall:
    """A call in flight or answered, with the requests that wait for it."""

    fingerprint: bytes
    retry_count: int
    """Of the latest request that this call answered."""
    task: asyncio.Task[Outcome] | None = None
    sampled: bool = False
    """The upstream has answered: from now on the call is finished also when nobody waits."""
    waiting: int = 0
    num_bytes: int = 0
    """Of the answer, once it is there."""

    @property
    def outcome(self) -> asyncio.Task[Outcome]:
        """The task that performs the call."""
        assert self.task is not None
        return self.task

    @property
    def can_answer_repeats(self) -> bool:
        """Whether a repeat may wait for this call or take its answer: a failed or abandoned one is asked anew."""
        task = self.outcome
        if not task.done():
            return task.cancelling() == 0
        return not task.cancelled() and task.exception() is None and task.result().status == 200

    async def wait(self, gone: asyncio.Future[None]) -> bool:
        """Wait for the outcome; False when the client left before. The last client to leave takes the call with it."""
        task = self.outcome
        self.waiting += 1
        try:
            await first_done(task, gone)
        finally:
            self.waiting -= 1
            if not task.done() and not self.waiting and not self.sampled:
                task.cancel()
        return task.done()


def identity_of(address: Address, headers: dict[bytes, bytes], body: bytes) -> CallIdentity:
    """Return what marks this request as new or as a repeat."""
    count = headers.get(b"x-stainless-retry-count", b"0")
    return CallIdentity(
        address=address,
        fingerprint=blake2b(body, digest_size=16).digest(),
        idempotency_key=headers.get(b"idempotency-key"),
        retry_count=int(count) if count.isdigit() and len(count) < 4 else 0,
    )


class RecentCalls:
    """The calls that a repeat can still meet."""

    def __init__(self, *, max_calls: int = _MAX_CALLS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._bytes = 0
        self._calls: dict[tuple[Address, bytes], list[RecentCall]] = {}
        self._in_order: OrderedDict[RecentCall, tuple[Address, bytes]] = OrderedDict()

    def claim(
        self, identity: CallIdentity, perform: Callable[[RecentCall], Coroutine[Any, Any, Outcome]]
    ) -> RecentCall:
        """Return the call that this request repeats, else a new one, which ``perform`` carries out.

        Raises:
            CallRefusedError: the idempotency key came with another body before.
        """
        name = (identity.address, identity.idempotency_key or identity.fingerprint)
        first = self._first_of(identity, self._calls.get(name, ()))
        if first is not None:
            if first.can_answer_repeats:
                first.retry_count = max(first.retry_count, identity.retry_count)
                return first
            self._forget(first)
        call = RecentCall(identity.fingerprint, identity.retry_count)
        call.task = asyncio.create_task(perform(call))
        call.task.add_done_callback(lambda task: self._finished(call, task))
        self._calls.setdefault(name, []).append(call)
        self._in_order[call] = name
        self._shrink()
        return call

    def in_flight(self) -> list[asyncio.Task[Outcome]]:
        """Return the calls that are being performed."""
        return [call.outcome for call in self._in_order if not call.outcome.done()]

    def _first_of(
        self, identity: CallIdentity, candidates: list[RecentCall] | tuple[()]
    ) -> RecentCall | None:
        """The call whose repeat this is; equal calls side by side are each matched by one repeat, the newest first."""
        if identity.idempotency_key is not None:
            first = candidates[-1] if candidates else None
            if first is not None and first.fingerprint != identity.fingerprint:
                message = "idempotency-key was used before in this attempt with another body; give each call its own"
                raise CallRefusedError(message, status=400, code="idempotency_key_reused")
            return first
        if not identity.retry_count:
            return None
        earlier = (call for call in reversed(candidates) if call.retry_count < identity.retry_count)
        return next(earlier, None)

    def _finished(self, call: RecentCall, task: asyncio.Task[Outcome]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if not failed and call in self._in_order:
            call.num_bytes = len(task.result().body)
            self._bytes += call.num_bytes
        self._shrink()

    def _shrink(self) -> None:
        while len(self._in_order) > self._max_calls or self._bytes > self._max_bytes:
            oldest = next((call for call in self._in_order if call.outcome.done()), None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, call: RecentCall) -> None:
        name = self._in_order.pop(call)
        self._bytes -= call.num_bytes
        calls = self._calls[name]
        calls.remove(call)
        if not calls:
            del self._calls[name]


async def first_done(*futures: asyncio.Future[Any]) -> None:
    """Return when any of them is done, like ``asyncio.wait`` at half its cost."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        for future in futures:
            future.remove_done_callback(wake)
