"""agl store backup: a consistent copy of the store in a file of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson

from agl.cli.store.gc import megabytes
from agl.cli.store.place import existing_store, store_settings
from agl.errors import ConfigError, StoreError, StoreUnavailableError
from agl.store import wire
from agl.store.base import Backup, LightningStore

CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0
"""Longest silence of the server; it copies a large store before it sends the first byte."""


def main(
    file: Path, overrides: Sequence[str], *, store_url: str | None, token: str | None, config_dir: Path | None
) -> None:
    """Copy, and print how large the copy is.

    Raises:
        ConfigError: the file is there already or cannot be made, or a mistake in the settings.
        StoreError: the store cannot be read, or does not make copies of itself.
    """
    with appearing_whole(file) as unfinished:
        store = existing_store(overrides, store_url=store_url, token=token, config_dir=config_dir)
        if store_url is None:
            asyncio.run(_copied(store, unfinished))
        else:
            settings = store_settings((), config_dir=config_dir, token=token)
            download(store.location, unfinished, token=settings.values["token"])
    print(f"{file}: {megabytes(file.stat().st_size)}")


@contextmanager
def appearing_whole(file: Path) -> Generator[Path]:
    """Give a name to write to; what is there when the block ends becomes ``file``, or nothing is left.

    Raises:
        ConfigError: there is such a file, or no way to make one.
    """
    if file.exists():
        raise ConfigError(f"{file} is there already, and a backup overwrites nothing: choose another name")
    if not file.parent.is_dir():
        raise ConfigError(f"{file} cannot be made: there is no folder {file.parent}")
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield unfinished
        with unfinished.open("rb+") as copy:
            os.fsync(copy.fileno())
        os.link(unfinished, file)  # unlike a rename, it never replaces a file
    except FileExistsError as error:
        raise ConfigError(f"{file} was made by another process meanwhile: choose another name") from error
    finally:
        unfinished.unlink(missing_ok=True)


async def _copied(store: LightningStore, target: Path) -> None:
    async with store:
        if not isinstance(store, Backup):
            raise ConfigError(
                f"the store in {store.location} makes no copies of itself: use its database's own tools"
            )
        await store.backup(str(target))


def download(
    url: str, target: Path, *, token: str | None, transport: httpx.BaseTransport | None = None
) -> None:
    """Write what the server at ``url`` sends as its backup to ``target``.

    Raises:
        StoreError: the server refused, or the connection was lost.
    """
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    try:
        with (
            httpx.Client(headers=headers, timeout=timeout, transport=transport) as client,
            client.stream("GET", f"{url.rstrip('/')}/v1/backup") as answer,
            target.open("wb") as copy,
        ):
            if not answer.is_success:
                raise _refusal(url, answer.status_code, answer.read())
            for part in answer.iter_bytes():
                copy.write(part)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise StoreUnavailableError(f"no backup from {url}: {error or type(error).__name__}") from error


def _refusal(url: str, status: int, body: bytes) -> StoreError:
    try:
        error = orjson.loads(body)["error"]
        return wire.error_from(error["code"], error["message"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return StoreError(f"{url} is no store: it answered {status}")
