"""Access to an open namespace: the connection, the time, repeated calls, and what runs beside the callers.

The time is the database's. Each process measures how far its own clock is from MongoDB's (``hello`` tells the
server's local time) when it opens and once a minute, so that many processes on many machines agree on leases to
within the network's delay. A server that does not tell the time leaves each process with its own clock.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.write_concern import WriteConcern

from agl.errors import StoreError, StoreUnavailableError
from agl.store.mongo.deadlines import Deadlines
from agl.store.mongo.documents import Document
from agl.store.mongo.failures import REFUSALS, is_duplicate, is_passing, store_error
from agl.store.mongo.schema import Collection, collections_of, prepare
from agl.store.waiting import Arrivals, Finishes

log = logging.getLogger(__name__)
T = TypeVar("T")
Connect = Callable[..., AsyncMongoClient[Document]]
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
_CODEC: CodecOptions[Document] = CodecOptions(document_class=dict[str, Any], tz_aware=True)
DEFAULT_DOCUMENT_BYTES = 16 * 1024 * 1024
ENVELOPE_BYTES = 32 * 1024
"""Left free in every document for what a server adds later: attempts, numbers."""


def random_id(prefix: str) -> str:
    """Return a new id: the prefix and 64 random bits."""
    return f"{prefix}-{secrets.token_hex(8)}"


class Access:
    """A MongoDB namespace between ``open`` and ``close``.

    Args:
        url: of the server.
        location: the same for people, without secrets.
        database: the database's name.
        prefix: how the names of its collections begin.
        timeout_seconds: how long a server is looked for, and a call repeated that did not reach it.
        journal: acknowledge a write only when it is in the server's journal.
        clock: Unix seconds; None is the database's clock.
        new_id: makes an id of a given prefix.
        look: ends what is overdue at a time, and returns the next deadline.
        connect: makes the driver's client of a URL and options.
    """

    def __init__(
        self,
        url: str,
        *,
        location: str,
        database: str,
        prefix: str,
        timeout_seconds: float,
        journal: bool,
        clock: Callable[[], float] | None,
        new_id: Callable[[str], str],
        look: Callable[[Access, float], Awaitable[float]],
        connect: Connect,
    ) -> None:
        self._url = url
        self.location = location
        self._database = database
        self._prefix = prefix
        self.timeout_seconds = timeout_seconds
        self._journal = journal
        self._given_clock = clock
        self.new_id = new_id
        self._connect = connect
        self._client: AsyncMongoClient[Document] | None = None
        self._collections: dict[str, Collection] = {}
        self._offset = 0.0
        self._last_stamp = 0
        self._visits: set[asyncio.Future[None]] = set()
        self._errands: set[asyncio.Task[Any]] = set()
        self.identity = ""
        self.document_bytes = DEFAULT_DOCUMENT_BYTES
        self.has_change_streams = False
        self.arrivals = Arrivals()
        self.finishes = Finishes()
        self.closing = False
        self.asked: dict[str, float] = {}
        """When each worker was last noted to ask for work."""
        self.kept: dict[str, float] = {}
        """When each long text was last noted to be needed."""
        self.deadlines = Deadlines(lambda now: look(self, now), self.now)

    @property
    def is_open(self) -> bool:
        """Whether calls are accepted."""
        return self._client is not None and not self.closing

    async def open(self) -> None:
        """Connect, make what is missing, and read the identity."""
        if self._client is not None:
            raise StoreError(f"the store {self.location} is open already")
        milliseconds = int(self.timeout_seconds * 1000)
        options: dict[str, Any] = {"journal": True} if self._journal else {}
        try:
            client = self._connect(
                self._url, serverSelectionTimeoutMS=milliseconds, appname="agl", tz_aware=True, **options
            )
        except (PyMongoError, ValueError, TypeError) as error:
            raise StoreError(f"the URL of {self.location} is not one that MongoDB's driver takes") from error
        self._client = client
        self.arrivals, self.finishes, self.closing = Arrivals(), Finishes(), False
        try:
            hello = await self.greet()
            self.document_bytes = int(hello.get("maxBsonObjectSize", DEFAULT_DOCUMENT_BYTES))
            self.has_change_streams = "setName" in hello or hello.get("msg") == "isdbgrid"
            concern = client.write_concern
            if self.has_change_streams and "w" not in concern.document:
                # What one member alone has written is lost when another becomes primary.
                concern = WriteConcern("majority", j=self._journal or None)
            database = client.get_database(self._database, codec_options=_CODEC, write_concern=concern)
            self._collections = collections_of(database, self._prefix)
            self.identity = await self.call(lambda: prepare(self._collections, self.location))
        except BaseException:
            self._client = None
            await client.close()
            raise

    async def close(self) -> None:
        """Let waiters go, finish what was begun, and disconnect."""
        client = self._client
        if client is None or self.closing:
            return
        self.closing = True
        self.arrivals.close()
        self.finishes.close()
        while self._visits or self._errands:
            await asyncio.wait((*self._visits, *self._errands))
        self._client = None
        await client.close()

    def __getitem__(self, name: str) -> Collection:
        """Return a collection by its short name."""
        return self._collections[name]

    # Time and order.

    def now(self) -> float:
        """Return the time."""
        return self._given_clock() if self._given_clock is not None else time.time() + self._offset

    async def greet(self) -> Document:
        """Ask the server what it is, and how late it is there."""
        client = self._client
        if client is None:
            raise self._unavailable()
        before = time.time()
        hello: Document = await self.call(lambda: client.admin.command("hello"))
        after = time.time()
        told = hello.get("localTime")
        if told is not None:
            # The server looked at its clock about half-way.
            self._offset = told.timestamp() - (before + after) / 2.0
        return hello

    def stamp(self) -> int:
        """Return a number that grows with time, and with every call of this process: microseconds, and who says so.

        Orders what many processes write without asking anyone; for the queue that is not exact enough (``number``).
        """
        self._last_stamp = max(self._last_stamp + 1, int(self.now() * 1e6))
        return self._last_stamp

    async def numbers(self, count: int) -> int:
        """Allocate consecutive numbers of the store's one counter and return the first."""

        async def add() -> Document | None:
            return await self["store"].find_one_and_update(
                {"_id": "numbers"}, {"$inc": {"value": count}}, upsert=True, return_document=True
            )

        while True:
            try:
                document = await self.call(add)
            except DuplicateKeyError:
                continue  # two processes made the counter at once; now it is there
            assert document is not None, "an upsert finds or makes it"
            return int(document["value"]) - count + 1

    # Calls.

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation of the driver that may be repeated; while the server does not answer, do so.

        Raises:
            StoreUnavailableError: no answer within ``timeout_seconds``.
            DuplicateKeyError, BulkWriteError: a unique index refused; the caller knows what that means.
        """
        until = time.monotonic() + self.timeout_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            if self._client is None:
                raise self._unavailable()
            try:
                return await operation()
            except REFUSALS as error:
                if is_duplicate(error):
                    raise
                if not is_passing(error) or time.monotonic() + pause > until:
                    raise store_error(error, self.location) from error
                log.warning("%s did not answer (%s): asking again", self.location, type(error).__name__)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2.0 * pause, LONGEST_PAUSE_SECONDS)

    @contextmanager
    def visit(self) -> Generator[None]:
        """Keep the connection open for a call: ``close`` waits for the visitor to leave."""
        if not self.is_open:
            raise self._unavailable()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._visits.add(gone)
        try:
            yield
        finally:
            self._visits.discard(gone)
            gone.set_result(None)

    def errand(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work that no caller's leaving may interrupt; ``close`` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task

    def _unavailable(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"the store {self.location} is not open: use it inside `async with store:`"
        )
