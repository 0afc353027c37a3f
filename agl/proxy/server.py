"""LLMProxy: the settings of the proxy, and its server on the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn

from agl.errors import ConfigError
from agl.http.listening import BACKLOG, KEEP_ALIVE_SECONDS, EmbeddedServer, is_loopback, listening, url_of
from agl.http.served import Connection, ConnectionLimits, raised_file_limit
from agl.proxy.app import ProxyApp
from agl.proxy.budgets import Budgets
from agl.proxy.cache import CacheMode, check_mode
from agl.proxy.prices import Prices
from agl.proxy.routing import Router, RouteTable
from agl.proxy.upstream import Upstream
from agl.store.base import LightningStore
from agl.types import ModelEndpoint
from agl.types.resource import NO_KEY
from agl.types.tokens import require_token

_MAX_CONNECTIONS = 16_384
_MAX_GRACE_SECONDS = 3.0  # with the server's own second and the last records, a stop takes under 5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyServer:
    """A proxy that serves."""

    url: str
    """Its root, e.g. ``http://127.0.0.1:40001``: the ``base_url`` of a ProxyLLM."""
    api_key: str = field(default=NO_KEY, repr=False)
    """The ``api_key`` of a ProxyLLM: the secret of which it makes each attempt's key."""
    router: Router | None = field(default=None, repr=False)
    """Chooses who answers a call; ``paused`` holds calls while weights change."""


class LLMProxy:
    """Where the proxy listens and what it lets in.

    Args:
        host: the address to listen on; another than this machine's own needs a token.
        port: 0 takes a free one.
        token: the secret of which the attempts' keys are made, which agents must then send; proxies that share a store
            share it. None makes one up and lets requests in without a key.
        max_body_bytes: the largest request body.
        upstream_timeout_seconds: the longest wait for the model's answer.
        budgets: hard limits of rollouts and runs; None is none.
        prices: of models, in USD per million tokens: ``{"my-model": {"input": 0.5, "output": 1.5}}``; they come before
            litellm's.
        endpoints: models behind other servers, by a name of one's choice, beside the engine; model endpoints in the
            store's resources are taken over while the proxy runs.
        max_retries: how often a call is tried again with the servers of one endpoint when they cannot be reached or
            answer 429 or 5xx.
        cache: answer a request from the record of an equal one: ``repeatable`` where the answer does not depend on
            chance (temperature 0, or a seed), ``all`` always; None never.
        grace_seconds: for calls in flight when the proxy stops; the rest are cancelled and recorded as such.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        max_body_bytes: int = 33554432,
        upstream_timeout_seconds: float = 600.0,
        budgets: Budgets | None = None,
        prices: Mapping[str, Mapping[str, float]] | None = None,
        cache: CacheMode | None = None,
        endpoints: Mapping[str, ModelEndpoint] | None = None,
        max_retries: int = 4,
        grace_seconds: float = 0.5,
    ) -> None:
        require_token(token, "proxy.token")
        if not is_loopback(host) and token is None:
            raise ConfigError(
                f"proxy.host={host} can be reached from other machines: set proxy.token, or use 127.0.0.1"
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"proxy.port={port}: a port is a number from 0 (any free one) to 65535")
        if max_body_bytes < 1:
            raise ConfigError(f"proxy.max_body_bytes={max_body_bytes}: at least 1")
        if not upstream_timeout_seconds > 0:
            raise ConfigError(f"proxy.upstream_timeout_seconds={upstream_timeout_seconds}: more than 0")
        self.host = host
        self.port = port
        self.token = token
        self.max_body_bytes = max_body_bytes
        self.upstream_timeout_seconds = upstream_timeout_seconds
        self.budgets = budgets or Budgets()
        self.prices = Prices(prices)
        check_mode(cache)
        self.cache: CacheMode | None = cache
        if max_retries < 0:
            raise ConfigError(f"proxy.max_retries={max_retries}: at least 0")
        self.endpoints = dict(endpoints or {})
        RouteTable(self.endpoints)  # what is wrong with the routes is told before anything starts
        self.max_retries = max_retries
        if not 0 <= grace_seconds <= _MAX_GRACE_SECONDS:
            raise ConfigError(f"proxy.grace_seconds={grace_seconds}: 0 to {_MAX_GRACE_SECONDS}")
        self.grace_seconds = grace_seconds

    @asynccontextmanager
    async def serving(self, store: LightningStore, upstream: Upstream | None) -> AsyncGenerator[ProxyServer]:
        """Serve calls, recorded in ``store``, until the block ends.

        They go to the endpoints of settings and store, and to ``upstream`` where none takes them.

        On the way out calls in flight get their time, are then cancelled, and every record is written.

        Raises:
            ConfigError: the address cannot be listened on, or an endpoint's servers cannot be spoken to.
            MissingExtraError: an endpoint needs an extra that is not installed.
        """
        router = Router(upstream, endpoints=self.endpoints, store=store, max_retries=self.max_retries)
        async with router, self._serving(store, router) as server:
            yield server

    @asynccontextmanager
    async def _serving(self, store: LightningStore, router: Router) -> AsyncGenerator[ProxyServer]:
        # reads litellm's map, before the first call
        await asyncio.to_thread(self.prices.price_of, router.model)
        secret = self.token or secrets.token_urlsafe()
        app = ProxyApp(
            store,
            router,
            secret=secret,
            needs_key=self.token is not None,
            max_body_bytes=self.max_body_bytes,
            upstream_timeout_seconds=self.upstream_timeout_seconds,
            budgets=self.budgets,
            prices=self.prices,
            cache=self.cache,
        )
        door = listening(self.host, self.port, who="the proxy", settings="proxy.")
        with _without_report_of_cut_streams(), door as listener:
            config = _uvicorn_config(app)
            config.load()  # here, so that what it raises is not lost in the server's task
            server = EmbeddedServer(config)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield ProxyServer(url=url_of(self.host, listener), api_key=secret, router=router)
            finally:
                try:
                    await app.close(grace_seconds=self.grace_seconds)
                finally:
                    server.should_exit = True
                    await task


def _uvicorn_config(app: ProxyApp) -> uvicorn.Config:
    limits = ConnectionLimits(max_connections=raised_file_limit(_MAX_CONNECTIONS))
    return uvicorn.Config(
        app,
        http=functools.partial(Connection, limits),  # pyright: ignore[reportArgumentType] - it calls it, no more
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )


@contextlib.contextmanager
def _without_report_of_cut_streams() -> Generator[None]:
    """Streams that fail are cut on purpose and recorded; the server would report each as an error of ours."""

    def is_news(record: logging.LogRecord) -> bool:
        return record.msg != "ASGI callable returned without completing response."

    server_log = logging.getLogger("uvicorn.error")
    server_log.addFilter(is_news)
    try:
        yield
    finally:
        server_log.removeFilter(is_news)
