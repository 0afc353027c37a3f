"""Opening: the servers behind an endpoint, made from its settings."""

from __future__ import annotations

from collections.abc import Callable

from agl.errors import ConfigError
from agl.proxy.routing.engine import EngineServer
from agl.proxy.routing.target import Replica, Target
from agl.proxy.upstreams.anthropic import AnthropicServer
from agl.proxy.upstreams.base import Server, checked_url, key_from_environment
from agl.proxy.upstreams.http import HttpServer
from agl.proxy.upstreams.litellm import LitellmServer
from agl.proxy.upstreams.native import ANTHROPIC, RESPONSES, NativeServer
from agl.proxy.upstreams.openai import OpenAIServer
from agl.types import ModelEndpoint

_NATIVE = {"anthropic": ANTHROPIC, "responses": RESPONSES}


def opened(
    name: str, endpoint: ModelEndpoint, *, engine: EngineServer | None, rng: Callable[[], float]
) -> Target:
    """Return an endpoint with its servers; connections come with the first calls.

    Raises:
        ConfigError: the settings contradict each other, or the variable of the API key is not set.
        MissingExtraError: the endpoint needs litellm.
    """
    servers: dict[str, Server]
    if endpoint.upstream == "engine":
        servers = {"engine": _engine_server(name, endpoint, engine)}
    else:
        servers = _remote_servers(name, endpoint)
    replicas = [
        Replica(url, server, max_concurrency=endpoint.max_concurrency, rng=rng)
        for url, server in servers.items()
    ]
    return Target(name, endpoint, replicas)


def _engine_server(name: str, endpoint: ModelEndpoint, engine: EngineServer | None) -> EngineServer:
    if engine is None:
        raise ConfigError(f"endpoint {name}: upstream=engine, and this proxy has no engine")
    if endpoint.urls or endpoint.api_key_env or endpoint.upstream_model:
        raise ConfigError(f"endpoint {name}: upstream=engine takes no urls, upstream_model or api_key_env")
    return engine


def _remote_servers(name: str, endpoint: ModelEndpoint) -> dict[str, Server]:
    key = key_from_environment(endpoint.api_key_env, f"endpoint {name}: api_key_env")
    urls = [checked_url(url, f"endpoint {name}: urls") for url in endpoint.urls]
    if len(set(urls)) < len(urls):
        raise ConfigError(f"endpoint {name}: urls: the same server twice")
    if endpoint.upstream == "litellm":
        return {url or "litellm": LitellmServer(endpoint, url=url, key=key) for url in urls or [None]}
    if not urls:
        raise ConfigError(f"endpoint {name}: urls: the base URL of at least one server")
    return {url: _http_server(endpoint, url, key) for url in urls}


def _http_server(endpoint: ModelEndpoint, url: str, key: str | None) -> Server:
    native = _NATIVE.get(endpoint.upstream)
    bearer = {} if key is None else {"authorization": f"Bearer {key}"}
    http = HttpServer(
        url,
        headers=bearer if native is None else native.key_headers(key),
        key=key,
        timeout_seconds=endpoint.timeout_seconds,
        connect_seconds=endpoint.connect_seconds,
    )
    if native is ANTHROPIC:
        return AnthropicServer(http, model=endpoint.upstream_model)
    if native is not None:
        return NativeServer(http, native, model=endpoint.upstream_model)
    return OpenAIServer(
        http, model=endpoint.upstream_model, token_ids=endpoint.token_ids, logprobs=endpoint.logprobs
    )
