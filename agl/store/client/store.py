"""The client store whole."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agl.errors import ConfigError
from agl.http.address import Dial, dialer
from agl.store.address import StoreAddress
from agl.store.base import LightningStore
from agl.store.client.address import address_from
from agl.store.client.bodies import OBJECT, decoded, target
from agl.store.client.caller import Caller, Means, Patience
from agl.store.client.heads import Heads
from agl.store.client.lane import Lane
from agl.store.client.queue import ClientQueue
from agl.store.client.records import ClientRecords


def random_id(prefix: str) -> str:
    """Return a new id: the prefix and 64 random bits, of the system, so that forked processes do not share them."""
    return f"{prefix}-{secrets.token_hex(8)}"


class HttpStore(ClientQueue, ClientRecords, LightningStore):
    """A store behind a URL, with connections, time and chance as arguments.

    Args:
        url: where an ``agl store`` answers.
        token: its token, or None.
        retry_seconds: how long an idempotent call is tried again while the store is out of reach.
        answer_seconds: a request without an answer for so long is lost.
        open_seconds: how long opening waits for a store that does not answer; no longer than ``retry_seconds``.
        dial: connects; None is TCP, with TLS for https.
        clock: seconds, never going back.
        rng: uniform numbers from 0 to 1, for jitter.
        sleep: as ``asyncio.sleep``.
        new_id: makes an id of a given prefix.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry_seconds: float = 3600.0,
        answer_seconds: float = 30.0,
        open_seconds: float = 60.0,
        dial: Dial | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        address = address_from(url)
        if not retry_seconds >= 0:
            raise ConfigError(f"store.retry_seconds={retry_seconds}: 0 or more")
        if not answer_seconds > 0:
            raise ConfigError(f"store.answer_seconds={answer_seconds}: more than 0")
        if not open_seconds >= 0:
            raise ConfigError(f"store.open_seconds={open_seconds}: 0 or more")
        self._address = StoreAddress(url=address.url, token=token)
        self._new_id = new_id
        self._caller = Caller(
            address.url,
            heads=Heads(address, token=token),
            patience=Patience(
                retry_seconds=retry_seconds,
                answer_seconds=answer_seconds,
                open_seconds=min(open_seconds, retry_seconds),
            ),
            means=Means(dial=dial or dialer(address), clock=clock, rng=rng, sleep=sleep),
            post_spans=self._post_spans,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._caller.url!r})"

    @property
    def location(self) -> str:
        """The URL."""
        return self._caller.url

    @property
    def address(self) -> StoreAddress:
        """The URL and the token."""
        return self._address

    @property
    def out_of_reach_at(self) -> float | None:
        """When a call last did not reach the store (``time.monotonic``); None where that has not happened."""
        return self._caller.out_of_reach_at

    @property
    def is_away(self) -> bool:
        """Whether calls wait for the store now."""
        return self._caller.is_away

    async def statistics(self, *, run_id: str | None = None) -> dict[str, Any]:
        """Return counts, of one run or of all."""
        return decoded(OBJECT, await self._caller.call("GET", target("/v1/statistics", {"run_id": run_id})))

    async def health(self) -> dict[str, Any]:
        """Return the store's status, identity and schema version."""
        return decoded(OBJECT, await self._caller.call("GET", "/v1/health"))

    async def open(self) -> None:
        """Connect, and learn which store this is; from then on no other is talked to.

        Each ``open``, of any event loop, has its ``close``. Other loops, threads and forked children may use an open
        store without opening it again.

        Raises:
            StoreUnavailableError: nothing answers, or another store than before.
            StoreError: what answers is no store.
            AccessDeniedError: the token is missing or wrong.
        """
        await self._caller.open()

    async def close(self) -> None:
        """End waits, let calls under way end, and close the connections."""
        await self._caller.close()

    async def _post_spans(self, lane: Lane, body: bytes) -> bytes:
        return await self._caller.call("POST", "/v1/spans?answer=ids", body, lane=lane)


class LightningStoreClient(HttpStore):
    """The store of an ``agl store`` process: same calls, same answers, same errors, from anywhere.

    Args:
        url: where it answers, e.g. http://127.0.0.1:4747.
        token: its token; None where it asks for none.
        retry_seconds: how long an idempotent call is tried again while the store is out of reach, once it was reached.
        answer_seconds: a request without an answer for so long is lost, and tried again where that is safe.
        open_seconds: how long opening waits for a store that does not answer; no longer than ``retry_seconds``.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry_seconds: float = 3600.0,
        answer_seconds: float = 30.0,
        open_seconds: float = 60.0,
    ) -> None:
        super().__init__(
            url,
            token=token,
            retry_seconds=retry_seconds,
            answer_seconds=answer_seconds,
            open_seconds=open_seconds,
        )
