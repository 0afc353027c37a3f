"""agl proxy: serve the door to the models, recording into a store that is served elsewhere."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from agl.cli.store.place import literal
from agl.cli.store.serve import token_hint
from agl.config import Settings, build, compose, settings_text
from agl.errors import ConfigError
from agl.launch.interpreter import tune_for_serving
from agl.launch.proxy import ServedProxy, StandaloneProxy
from agl.launch.stopping import run_until_stopped
from agl.types import Json


def main(
    overrides: Sequence[str],
    *,
    store_url: str | None,
    host: str | None,
    port: int | None,
    token: str | None,
    config_dir: Path | None,
    cfg: bool,
) -> None:
    """Serve until SIGTERM (which is the end: exit code 0) or Ctrl-C (an interrupt: 130).

    Raises:
        ConfigError: a mistake in the settings, or an address that cannot be listened on.
        StoreError: a store that cannot be reached.
    """
    settings = proxy_settings(
        overrides, store_url=store_url, host=host, port=port, token=token, config_dir=config_dir
    )
    if cfg:
        print(settings_text(settings), end="")
        return
    service = build(settings, StandaloneProxy)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    tune_for_serving()
    if run_until_stopped(lambda: serving(service)) is signal.SIGINT:
        raise KeyboardInterrupt


def proxy_settings(
    overrides: Sequence[str], *, store_url: str | None, config_dir: Path | None, **options: Json
) -> Settings:
    """Compose the settings of ``agl proxy``; the command's options, where given, replace those of the proxy.

    Raises:
        ConfigError: a mistake in the overrides, or no store.
    """
    settings = compose("proxy", overrides, config_dir=config_dir)
    given = {name: literal(value) for name, value in options.items() if value is not None}
    changes: dict[str, Json] = {}
    if given:
        changes["proxy"] = {**cast("Mapping[str, Json]", settings.raw["proxy"]), **given}
    if store_url is not None:
        changes["store"] = {**cast("Mapping[str, Json]", settings.raw["store"]), "url": literal(store_url)}
    settings = settings.with_values(**changes)
    if "store.url" in settings.missing():
        raise ConfigError("say where calls are recorded: --store-url URL of a store that `agl store` serves")
    return settings


@asynccontextmanager
async def serving(service: StandaloneProxy) -> AsyncGenerator[None]:
    """Serve and say where."""
    async with service.serving() as served:
        print("\n".join(start_lines(served, token=service.proxy.token)), flush=True)
        yield


def start_lines(served: ServedProxy, *, token: str | None) -> list[str]:
    """Return what a person needs to know once the proxy serves."""
    models = ", ".join(served.models) or "none yet: give proxy.endpoints, or add endpoints to the store"
    return [
        f"agl proxy serves {served.url}",
        f"  records  {served.records}",
        f"  identity {served.identity}",
        f"  token    {token_hint(token)}",
        f"  models   {models}",
        f"  accounts {served.url}/accounts",
        f"  agents   {served.url}/rollout/ROLLOUT_ID/attempt/ATTEMPT_ID/v1",
    ]
