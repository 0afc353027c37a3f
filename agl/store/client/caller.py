"""Caller: one call over the wire - sent, tried again where that is safe, and refused as the exception it stands for."""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agl.errors import AccessDeniedError, StoreChangedError, StoreError, StoreUnavailableError
from agl.http.address import Dial
from agl.http.connections import Connections, LostError, NotHttpError, NotSentError
from agl.http.parsing import Answer, parser_maker
from agl.store import wire
from agl.store.client.heads import Heads
from agl.store.client.lane import Lane
from agl.store.client.refusals import BUSY, TOO_MANY, identity_in, refusal_in, retry_after
from agl.store.client.retry import Outage

log = logging.getLogger(__name__)

THREAD_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What tests replace: connections, time and chance."""

    dial: Dial
    clock: Callable[[], float]
    rng: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long calls wait."""

    retry_seconds: float
    """An idempotent call is tried again for so long while the store is out of reach."""
    answer_seconds: float
    """A request without an answer for so long is lost."""
    open_seconds: float
    """The same as ``retry_seconds`` for opening: a store that never answered may not be there at all."""


class _FailureError(Exception):
    """A try that may be worth another."""

    def __init__(
        self, cause: object, *, maybe_done: bool, at_once: bool = False, at_least: float = 0.0
    ) -> None:
        super().__init__(str(cause))
        self.out_of_reach = not at_least
        """Rather than that it asked for patience."""
        self.maybe_done = maybe_done
        """Whether the store may have carried the call out."""
        self.at_once = at_once
        self.at_least = at_least


class Caller:
    """Makes calls, from any event loop, thread and forked child.

    Args:
        url: of the store, for messages.
        heads: make requests to it.
        patience: how long calls wait.
        means: connections, time and chance.
        post_spans: sends the spans of a lane.
    """

    def __init__(
        self,
        url: str,
        *,
        heads: Heads,
        patience: Patience,
        means: Means,
        post_spans: Callable[[Lane, bytes], Awaitable[bytes]],
    ) -> None:
        self.url = url
        self.means = means
        self._identity: str | None = None
        self._heads = heads
        self._patience = patience
        self._post_spans = post_spans
        self._opens: list[None] = []  # its length counts; append and pop are whole between threads, += is not
        self._pid = os.getpid()
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self._inherited: list[object] = []
        self._away = False
        self.out_of_reach_at: float | None = None
        """When a try last did not reach the store, of the means' clock."""

    @property
    def is_away(self) -> bool:
        """Whether calls wait for the store now."""
        return self._away

    async def open(self) -> None:
        """Make sure that a store answers, that it takes the token, and that it is the one of earlier times.

        Each ``open`` has its ``close``; the last one closes for all event loops.
        """
        lane = await self._lane()
        try:
            with lane.visit():
                await self._meet(lane)
        except BaseException:
            if not self._opens:
                await self._close_lanes()
            raise
        self._opens.append(None)

    async def close(self) -> None:
        """End what runs in this event loop; with the last ``open`` taken back, also what other loops have."""
        if self._pid != os.getpid():
            self._leave_the_parents_lanes()
        if not self._opens:
            return
        self._opens.pop()
        if not self._opens:
            await self._close_lanes()
        else:
            lane = self._lanes.pop(asyncio.get_running_loop(), None)
            if lane is not None:
                await lane.close()

    async def lane(self) -> Lane:
        """Return the running event loop's lane.

        Raises:
            StoreUnavailableError: the store is not open.
        """
        if not self._opens:
            raise StoreUnavailableError(
                f"the store {self.url} is not open: use it inside `async with store:`"
            )
        return await self._lane()

    async def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        repeatable: bool = True,
        lane: Lane | None = None,
    ) -> bytes:
        """Return the body of the answer.

        Args:
            method: of HTTP.
            target: path and parameters.
            body: JSON, or nothing.
            repeatable: doing it twice comes to the same; else it is sent again only if it surely was not sent.
            lane: of a call under way, which may end its work while the store closes.

        Raises:
            StoreError: the store's refusal, of the class that it has there.
            StoreUnavailableError: no answer in time.
            StoreChangedError: another store answers than the one that was opened.
        """
        lane = lane or await self.lane()
        lane.busy += 1
        try:
            packed = self._heads.compresses(body)
            if packed:
                body = await _off_loop(body, partial(gzip.compress, compresslevel=1))
            request = self._heads.request(method, target, body, packed=packed)
            answer = await self._answer(lane, request, repeatable=repeatable)
            return answer.body if answer.status < 300 else await self._refuse(lane, answer)
        finally:
            lane.leave()

    async def poll(self, lane: Lane, target: str, *, body: bytes, repeat: bytes, seconds: float) -> bytes:
        """Return the body of the answer to a POST that the server may hold for so many seconds.

        Args:
            lane: of the call under way.
            target: path and parameters.
            body: JSON.
            repeat: JSON of the tries after a failure: the same without the wait, so that they answer or fail soon.
            seconds: of the wait.

        Raises:
            PollCutError: the store is being closed.
        """
        first = self._heads.request("POST", target, body)
        try:
            answer = await self._try(lane, first, self._patience.answer_seconds + seconds, polls=True)
        except _FailureError as failure:
            answer = await self._answer(lane, self._heads.request("POST", target, repeat), after=failure)
        return answer.body if answer.status < 300 else await self._refuse(lane, answer)

    async def _answer(
        self,
        lane: Lane,
        request: bytes,
        *,
        repeatable: bool = True,
        after: _FailureError | None = None,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Send until there is an answer that another try would not change, for ``retry_seconds`` or as told."""
        outage: Outage | None = None
        failure, seconds = after, self._patience.answer_seconds
        while True:
            if failure is None:
                try:
                    return await self._try(lane, request, seconds)
                except _FailureError as error:
                    failure = error
            if failure.maybe_done and not repeatable:
                raise StoreUnavailableError(
                    f"{self.url} may or may not have done this, and doing it again is not the same: {failure}"
                ) from failure.__cause__
            if outage is None:
                limit = self._patience.retry_seconds if patience_seconds is None else patience_seconds
                outage = Outage(limit, clock=self.means.clock, rng=self.means.rng)
            await self._pause(lane, outage, failure)
            failure, seconds = None, min(self._patience.answer_seconds, max(outage.left(), 1.0))

    async def _try(self, lane: Lane, request: bytes, seconds: float, *, polls: bool = False) -> Answer:
        exchange = lane.connections.poll if polls else lane.connections.exchange
        try:
            answer = await exchange(request, seconds=seconds)
        except NotSentError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise StoreUnavailableError(f"{self.url} cannot be trusted: {error}") from error
            raise _FailureError(error, maybe_done=False) from error
        except LostError as error:
            raise _FailureError(error, maybe_done=True, at_once=error.stale) from error
        except NotHttpError as error:
            raise StoreError(f"{self.url} does not speak HTTP: check store.url ({error})") from error
        if answer.headers.get(b"content-encoding") == b"gzip":
            answer.body = await _off_loop(answer.body, gzip.decompress)
        if answer.status in BUSY:
            why = refusal_in(answer)
            raise _FailureError(
                why.message, maybe_done=answer.status != TOO_MANY, at_least=retry_after(answer)
            )
        if self._away:
            self._away = False
            log.info("the store %s answers again", self.url)
        return answer

    async def _pause(self, lane: Lane, outage: Outage, failure: _FailureError) -> None:
        """Wait before the next try.

        Raises:
            StoreUnavailableError: there is no time for one, or the store is being closed.
        """
        at_once = failure.at_once and outage.failures == 0
        pause = outage.pause(at_least=failure.at_least)
        if at_once:
            return
        if failure.out_of_reach:
            self.out_of_reach_at = self.means.clock()
        if pause is not None and not self._away and not lane.closing:
            self._away = True
            log.warning(
                "waiting for the store %s (%s), for up to %g s",
                self.url,
                failure,
                outage.seconds,
            )
        if pause is None or not await lane.pause(pause):
            often = f"{outage.elapsed:.1f} s and {outage.failures} tries"
            tries = f"{f'in {often}' if outage.failures > 1 else 'when asked once'}: {failure}"
            if self._identity is None:
                what = (
                    f"no store answers at {self.url} {tries}. Is it started (`agl store`), and the URL right?"
                )
            else:
                what = f"{self.url} did not do this {tries}"
            raise StoreUnavailableError(what) from failure.__cause__

    async def _refuse(self, lane: Lane, answer: Answer) -> bytes:
        """Raise what an answer that is no success stands for."""
        refusal = refusal_in(answer)
        if refusal.code == "store_changed":
            raise self._changed(await self._found_identity(lane))
        if refusal.code is None:
            raise StoreError(
                f"{self.url} does not answer as an `agl store`: check store.url ({refusal.message})"
            )
        raise wire.error_from(refusal.code, refusal.message)

    async def _meet(self, lane: Lane) -> None:
        found = await self._found_identity(lane)
        if self._identity is not None and found != self._identity:
            raise self._changed(found)
        self._identity = found
        self._heads.name_the_store(found)
        answer = await self._answer(
            lane,
            self._heads.request("GET", "/v1/workers?limit=1"),
            patience_seconds=self._patience.open_seconds,
        )
        if answer.status == 401:
            raise AccessDeniedError(f"{self.url} {self._heads.what_is_wrong_with_the_token()}")

    async def _found_identity(self, lane: Lane) -> str:
        answer = await self._answer(
            lane,
            self._heads.request("GET", "/v1/health", named=False),
            patience_seconds=self._patience.open_seconds,
        )
        found = identity_in(answer)
        if found is None:
            raise StoreError(
                f"{self.url} is not an `agl store`: check store.url (HTTP {answer.status} without an identity)"
            )
        return found

    def _changed(self, found: str) -> StoreChangedError:
        return StoreChangedError(
            f"{self.url} is another store now: {found}, while this client was opened on {self._identity}"
        )

    async def _lane(self) -> Lane:
        if self._pid != os.getpid():
            self._leave_the_parents_lanes()
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None or lane.closing:  # closing: the loop was about to end, and did not
            for other in [one for one in list(self._lanes) if one.is_closed()]:
                self._lanes.pop(other, None)
            connections = Connections(
                self.means.dial, parser_maker(), closed="the store was closed on this side"
            )
            lane = self._lanes[loop] = Lane(connections, post=self._post_spans, sleep=self.means.sleep)
            await lane.begin()
        return lane

    async def _close_lanes(self) -> None:
        mine = self._lanes.pop(asyncio.get_running_loop(), None)
        for loop, lane in list(self._lanes.items()):
            with suppress(RuntimeError):  # the loop is closed, and its sockets with it
                loop.call_soon_threadsafe(lane.drop)
        self._lanes.clear()
        if mine is not None:
            await mine.close()

    def _leave_the_parents_lanes(self) -> None:
        """After a fork: keep the parent's sockets untouched and referred to, so that nothing here closes them."""
        self._inherited.append(self._lanes)
        self._lanes, self._pid = {}, os.getpid()


async def _off_loop(data: bytes, work: Callable[[bytes], bytes]) -> bytes:
    """Pack or unpack; in a thread what would keep the event loop for more than some milliseconds."""
    return work(data) if len(data) < THREAD_BYTES else await asyncio.to_thread(work, data)
