"""Which records a command is about: a run's folder, or a store that is served."""

from __future__ import annotations

import os
from pathlib import Path

from agl.cli.arguments import AsJson as AsJson
from agl.cli.arguments import RunDir as RunDir
from agl.cli.arguments import StoreUrl as StoreUrl
from agl.cli.run_folder import RUNS, SETTINGS_FILE
from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.opening import FILE_IN_RUN, store_to_change, store_to_read

PATIENCE_SECONDS = 600.0
"""Of a person at a terminal, for an answer that takes its time; where nobody answers, they are told at once."""


def records_to_read(store_url: str | None, run_dir: str | None) -> LightningStore:
    """Return the store with the records, built but not open; a file is only read, whoever else writes it.

    Args:
        store_url: of a store that is served, with the token of ``AGL_STORE_TOKEN``.
        run_dir: the folder of a run, its name under ``runs/``, or a store's file; None is the newest run.

    Raises:
        ConfigError: both are given, or there is no such run or file.
    """
    if store_url is not None:
        return _served(store_url, run_dir)
    return store_to_read(str(file_of_records(run_dir)))


def records_to_change(store_url: str | None, run_dir: str | None) -> LightningStore:
    """Return the same store to write in, built but not open; opening a file that somebody else serves is refused.

    Raises:
        ConfigError: both are given, or there is no such run or file.
    """
    if store_url is not None:
        return _served(store_url, run_dir)
    return store_to_change(file_of_records(run_dir))


def file_of_records(run_dir: str | None) -> Path:
    """Return the store's file of a run: of the one that is named, else of the newest under ``runs/``.

    Raises:
        ConfigError: there is none.
    """
    if run_dir is None:
        newest = newest_run_folder()
        if newest is None:
            raise ConfigError(
                f"{RUNS.resolve()} has no run with records: name a run with --run-dir, or a store with --store-url"
            )
        return newest / FILE_IN_RUN
    places = [Path(run_dir).expanduser(), RUNS / run_dir]
    for place in places:
        file = place / FILE_IN_RUN if place.is_dir() else place
        if file.is_file():
            return file
    served = next((place for place in places if (place / SETTINGS_FILE).is_file()), None)
    if served is not None:
        raise ConfigError(
            f"the records of {served} are not in its folder: say with --store-url where they are"
        )
    raise ConfigError(f"there is no run {run_dir}: neither {places[0]} nor {places[1]} has a {FILE_IN_RUN}")


def newest_run_folder() -> Path | None:
    """Return the folder under ``runs/`` whose run began last, of those that keep their own records."""
    found = RUNS.glob(f"*/{FILE_IN_RUN}")
    files = [file for file in found if file.is_file() and (file.parent / SETTINGS_FILE).is_file()]
    newest = max(files, key=lambda file: (file.parent / SETTINGS_FILE).stat().st_mtime, default=None)
    return None if newest is None else newest.parent


def _served(store_url: str, run_dir: str | None) -> LightningStore:
    if run_dir is not None:
        raise ConfigError(f"--run-dir {run_dir} and --store-url {store_url} name two stores: leave one out")
    token = os.environ.get("AGL_STORE_TOKEN")
    return LightningStoreClient(store_url, token=token, retry_seconds=0.0, answer_seconds=PATIENCE_SECONDS)
