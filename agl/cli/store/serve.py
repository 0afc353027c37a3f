"""agl store: open the store, serve it, and close it when a signal asks for that."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from agl.cli.store.place import file_of, store_settings
from agl.config import build, settings_text
from agl.http.listening import listening
from agl.launch.interpreter import tune_for_serving
from agl.launch.stopping import run_until_stopped
from agl.store.server import StoreServer

HINT_FROM = 16
"""Length of a token of which the last four characters may be shown."""


@runtime_checkable
class Announcing(Protocol):
    """A store that tells others, who find its file taken, where it is served."""

    def announce(self, url: str) -> None:
        """Tell it from now on."""
        ...


def main(
    overrides: Sequence[str],
    *,
    host: str | None,
    port: int | None,
    token: str | None,
    read_only: bool,
    config_dir: Path | None,
    cfg: bool,
) -> None:
    """Serve until SIGTERM (which is the end: exit code 0) or Ctrl-C (an interrupt: 130).

    Raises:
        ConfigError: a mistake in the settings, or an address that cannot be listened on.
        StoreError: a store that cannot be opened.
    """
    settings = store_settings(
        overrides, config_dir=config_dir, host=host, port=port, token=token, read_only=read_only or None
    )
    if cfg:
        print(settings_text(settings), end="")
        return
    server = build(settings, StoreServer)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    file = file_of(settings)
    if file is None or not file.exists():
        with listening(
            server.host, server.port, who="the store"
        ):  # an address that is refused leaves no new store behind
            pass
    tune_for_serving()
    if run_until_stopped(lambda: serving(server)) is signal.SIGINT:
        raise KeyboardInterrupt


@asynccontextmanager
async def serving(server: StoreServer) -> AsyncGenerator[None]:
    """Open the store, serve it and say where."""
    async with server.store as store, server.serving() as url:
        if isinstance(store, Announcing):
            store.announce(url)
        identity = (await store.health())["identity"]
        lines = start_lines(
            url,
            location=store.location,
            identity=identity,
            token=server.token,
            read_only=server.read_only,
        )
        print("\n".join(lines), flush=True)
        yield


def start_lines(url: str, *, location: str, identity: str, token: str | None, read_only: bool) -> list[str]:
    """Return what a person needs to know once the store is served."""
    file = Path(location)
    records = str(file.resolve()) if file.is_file() else location
    secret = "" if token is None else ', token=os.environ["AGL_STORE_TOKEN"]'
    return [
        f"agl store serves {url}{' (read-only)' if read_only else ''}",
        f"  records  {records}",
        f"  identity {identity}",
        f"  token    {token_hint(token)}",
        f"  docs     {url}/docs",
        f'  connect  agl.LightningStoreClient("{url}"{secret})',
    ]


def token_hint(token: str | None) -> str:
    """Return enough to recognise a token by, and too little to use it."""
    if token is None:
        return "none: only this machine can connect"
    return f"set (...{token[-4:]})" if len(token) >= HINT_FROM else "set"
