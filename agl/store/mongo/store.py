"""The MongoDB store whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pymongo import AsyncMongoClient

from agl.store.base import LightningStore
from agl.store.mongo import batches, keeping, runs
from agl.store.mongo.access import Access, Connect, random_id
from agl.store.mongo.location import check_settings, location_of
from agl.store.mongo.queue import MongoQueue
from agl.store.mongo.records import MongoRecords
from agl.store.mongo.retention import MongoRetention
from agl.store.mongo.schema import SCHEMA_VERSION


class MongoStore(MongoQueue, MongoRecords, MongoRetention, LightningStore):
    """A store in a MongoDB database, with its clock and ids as arguments.

    Args:
        url: ``mongodb://...`` or ``mongodb+srv://...``; user, password and options of the driver go into it.
        database: the database's name.
        prefix: how the names of its collections begin: several stores may share a database.
        timeout_seconds: how long to look for the server, and to repeat a call that did not reach it.
        journal: acknowledge a write only when it is in the server's journal.
        clock: Unix seconds; None is the database's clock.
        new_id: makes an id of a given prefix.
        connect: makes the driver's client of a URL and options.
    """

    def __init__(
        self,
        url: str,
        *,
        database: str = "agl",
        prefix: str = "",
        timeout_seconds: float = 10.0,
        journal: bool = True,
        clock: Callable[[], float] | None = None,
        new_id: Callable[[str], str] = random_id,
        connect: Connect = AsyncMongoClient,
    ) -> None:
        check_settings(url, database=database, prefix=prefix, timeout_seconds=timeout_seconds)
        self._access = Access(
            url,
            location=location_of(url, database=database, prefix=prefix),
            database=database,
            prefix=prefix,
            timeout_seconds=timeout_seconds,
            journal=journal,
            clock=clock,
            new_id=new_id,
            look=keeping.look,
            connect=connect,
        )
        self._server_id = random_id("server")
        self._beside: list[asyncio.Task[None]] = []

    @property
    def location(self) -> str:
        """The server and the namespace, without user, password and options."""
        return self._access.location

    async def statistics(self, *, run_id: str | None = None) -> dict[str, Any]:
        """Return counts, of one run or of all."""
        with self._access.visit():
            return await runs.statistics(self._access, run_id)

    async def health(self) -> dict[str, Any]:
        """Return the store's status, identity and schema version, after asking the server."""
        with self._access.visit():
            await self._access.greet()
            return {
                "status": "ok",
                "identity": self._access.identity,
                "schema_version": SCHEMA_VERSION,
            }

    async def sweep(self) -> None:
        """Let the watchdog look now. The store does so by itself; this is for clocks that are not the system's."""
        with self._access.visit():
            await self._access.deadlines.look()

    async def open(self) -> None:
        """Connect and take the namespace into use.

        Raises:
            StoreUnavailableError: no server within ``timeout_seconds``.
            StoreError: the server refuses, or the documents are a newer version's.
        """
        access = self._access
        await access.open()
        try:
            await batches.recover(access, older_than=0.0)
            await keeping.grant_grace(access, self._server_id)
            await keeping.show_life(access, self._server_id)
            await access.deadlines.look()  # what ran out while no process was there has ended when it is open
        except BaseException:
            await access.close()
            raise
        loop = asyncio.get_running_loop()
        self._beside = [
            loop.create_task(keeping.keep(access, self._server_id)),
            loop.create_task(keeping.listen(access)),
        ]

    async def close(self) -> None:
        """Let waiters go, finish what was begun, and disconnect."""
        beside, self._beside = self._beside, []
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if self._access.is_open:
            await keeping.leave(self._access, self._server_id)
        await self._access.close()


class MongoLightningStore(MongoStore):
    """The store in MongoDB: many server processes may have one database open, on many machines.

    Needs no transactions, so a standalone ``mongod`` does. What it has acknowledged survives ``kill -9`` of any
    process, the server's included, as long as ``journal`` is on.

    Args:
        url: ``mongodb://...`` or ``mongodb+srv://...``; user, password and options of the driver go into it.
        database: the database's name.
        prefix: how the names of its collections begin: several stores may share a database.
        timeout_seconds: how long to look for the server, and to repeat a call that did not reach it.
        journal: acknowledge a write only when it is in the server's journal.
    """

    def __init__(
        self,
        url: str,
        *,
        database: str = "agl",
        prefix: str = "",
        timeout_seconds: float = 10.0,
        journal: bool = True,
    ) -> None:
        super().__init__(
            url, database=database, prefix=prefix, timeout_seconds=timeout_seconds, journal=journal
        )
