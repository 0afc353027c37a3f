"""The store that a command changes: found by an id, opened for writing, and whose it is where that is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agl.cli.named_records import Kind, file_with, unknown_id
from agl.cli.records import file_of_records, records_to_change
from agl.cli.run_folder import RUNS, SETTINGS_FILE
from agl.errors import InvalidRequestError, NotFoundError, StoreError
from agl.store.base import LightningStore
from agl.types import Rollout

_OPEN_ELSEWHERE = re.compile(r"is open in process ([^\s,:]+)(?:, which serves it at (\S+):)?")


async def place_of(
    wanted: str | None, store_url: str | None, run_dir: str | None, *, kinds: Sequence[Kind]
) -> str | None:
    """Return what to give as ``run_dir`` for the store that has the record; None where it is served at a URL.

    Args:
        wanted: its id; None is the run's that is named, else the newest.
        store_url: of a store that is served.
        run_dir: of a run. Without both the runs under ``runs/`` are asked.
        kinds: what the record may be.

    Raises:
        ConfigError: there is no such run, or both are given.
    """
    if store_url is not None:
        records_to_change(store_url, run_dir)  # which refuses both
        return None
    if run_dir is not None or wanted is None:
        return str(file_of_records(run_dir))
    return str(await file_with(wanted, kinds=kinds))


@asynccontextmanager
async def to_change(store_url: str | None, place: str | None) -> AsyncGenerator[LightningStore]:
    """Open the store to write in.

    Raises:
        StoreError: another process has it; the message says what to do.
    """
    store = records_to_change(store_url, place)
    try:
        await store.open()
    except StoreError as error:
        found = _OPEN_ELSEWHERE.search(str(error))
        if found is None:
            raise
        process, url = found.groups()
        ways = (
            f"give --store-url {url} (its token is AGL_STORE_TOKEN, and in {Path(store.location).parent}/store.token),"
            " or stop it with Ctrl-C first"
            if url
            else "stop it with Ctrl-C first, or serve the records of runs with `agl store` and begin these with"
            " --store-url"
        )
        raise StoreError(
            f"{store.location} belongs to process {process}, which is at work: {ways}"
        ) from error
    try:
        yield store
    finally:
        await store.close()


async def rollout_named(store: LightningStore, rollout_id: str) -> Rollout:
    """Return the rollout.

    Raises:
        ConfigError: there is none of that id; like ids are named.
    """
    try:
        return await store.get_rollout_by_id(rollout_id)
    except (NotFoundError, InvalidRequestError) as error:
        raise await unknown_id(store, rollout_id, kinds=("rollout",)) from error


def run_folder_of(place: str | None, rollout: Rollout) -> Path | None:
    """Return the folder with the settings of the run that had the rollout; None where it is not here.

    Args:
        place: of the store's file; None where it is served.
        rollout: whose run is looked for.
    """
    folders = [] if place is None else [Path(place).parent]
    if rollout.run_id is not None:
        folders.append(RUNS / rollout.run_id)
    return next((folder for folder in folders if (folder / SETTINGS_FILE).is_file()), None)
