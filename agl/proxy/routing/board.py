"""Board: the endpoints in force - those of settings, overlaid by the store's - swapped whole while calls go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from agl.errors import ConfigError, MissingExtraError, StoreError
from agl.proxy.routing.follow import EndpointFeed, endpoints_of
from agl.proxy.routing.table import RouteTable
from agl.proxy.routing.target import Replica, Target
from agl.types import ModelEndpoint

log = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0  # between two looks at the store, and at sick servers


class Board:
    """Which targets are for a call, now.

    Args:
        settings: endpoints by name that are there from the start.
        feed: the store's endpoints, which win where a name is the same; None for none.
        open_target: makes the servers of an endpoint.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        settings: Mapping[str, ModelEndpoint],
        *,
        feed: EndpointFeed | None,
        open_target: Callable[[str, ModelEndpoint], Target],
        clock: Callable[[], float],
    ) -> None:
        self._settings = dict(settings)
        self._feed = feed
        self._open_target = open_target
        self._clock = clock
        self.table = RouteTable(self._settings)
        self._targets: dict[str, Target] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the endpoints of the settings, then those of the store, and keep watch.

        Raises:
            ConfigError: the settings contradict each other.
            MissingExtraError: an endpoint needs an extra that is not installed.
        """
        self._swap(self._settings)
        await self.follow()
        self._start(self._watch())

    async def aclose(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        targets, self._targets = self._targets, {}
        for target in targets.values():
            await target.aclose()

    def route(self, model: str, *, agent: str | None, mode: str | None) -> Sequence[Target]:
        """Return the targets for a call, in the order in which they are tried."""
        return [self._targets[name] for name in self.table.route(model, agent=agent, mode=mode)]

    async def follow(self) -> None:
        """Take over what is new in the store. A version that cannot be opened changes nothing and is reported."""
        if self._feed is None:
            return
        try:
            named = await self._feed.changes()
        except StoreError as error:
            log.warning("the store does not tell of its model endpoints: %s", error)
            return
        if named is None:
            return
        try:
            self._swap({**self._settings, **endpoints_of(named)})
        except (ConfigError, MissingExtraError) as error:
            log.error(  # noqa: TRY400 - the message is the whole cause
                "the model endpoints of resources version %d are not taken over: %s", named.version, error
            )
        else:
            log.info("model endpoints are those of resources version %d", named.version)

    async def probe(self) -> None:
        """Ask the servers that have rested from their failures whether they answer."""
        now = self._clock()
        due = [
            replica
            for target in self._targets.values()
            for replica in target.replicas
            if replica.breaker.is_due(now)
        ]
        await asyncio.gather(*(self._probe(replica) for replica in due))

    def _swap(self, endpoints: Mapping[str, ModelEndpoint]) -> None:
        """Put new endpoints in force at once; those that did not change keep their servers."""
        table = RouteTable(endpoints)
        targets: dict[str, Target] = {}
        for name, endpoint in endpoints.items():
            known = self._targets.get(name)
            if known is not None and known.endpoint == endpoint:
                targets[name] = known
            elif not endpoint.withdrawn:
                targets[name] = self._open_target(name, endpoint)
        retired = [target for name, target in self._targets.items() if targets.get(name) is not target]
        self.table, self._targets = table, targets
        for target in retired:
            target.successor = targets.get(target.name)
            self._start(target.retire())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                await self.follow()
                await self.probe()
            except Exception:
                log.exception("the proxy's look at its model endpoints failed; the next one is in a second")

    async def _probe(self, replica: Replica) -> None:
        answers = await replica.server.probe()
        if answers is None:
            return
        if answers:
            replica.breaker.succeeded()
            log.info("model server %s answers again", replica.name)
        else:
            replica.breaker.failed(self._clock())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
