"""agl import: read exported records into a store: a new folder's, a run's, or one that is served."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agl.cli.progress import Progress
from agl.cli.records import records_to_change
from agl.cli.run_folder import RUNS, unused
from agl.cli.text import counted, say, say_json, terminal_width, wrapped
from agl.errors import ConfigError
from agl.export.importing import Imported, import_records
from agl.export.whole import appearing
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN, store_to_change


def main(files: Sequence[Path], *, run_dir: str | None, store_url: str | None, as_json: bool) -> None:
    """Import, and print what came in.

    Raises:
        ConfigError: a file at fault, or a place that takes no records.
        AglError: the records are not complete.
    """
    for file in files:
        if not file.is_file():
            raise ConfigError(f"there is no file {file} to import")
    with Progress(sys.stderr, "importing") as progress:
        progress.draw("starting")
        with _target(run_dir, store_url) as (store, place, is_new):
            imported = asyncio.run(_imported(files, store, progress))
    report = report_of(imported, place, is_new=is_new)
    if as_json:
        say_json(report)
    else:
        say(lines_of(report, width=terminal_width()))


@contextmanager
def _target(run_dir: str | None, store_url: str | None) -> Generator[tuple[LightningStore, str, bool]]:
    """Give the store, where it is, and whether it is new; a new folder appears when all is in it."""
    if store_url is not None:
        yield records_to_change(store_url, run_dir), store_url, False
        return
    folder = unused(RUNS / time.strftime("%Y-%m-%d_%H-%M-%S-import")) if run_dir is None else _place(run_dir)
    if (folder / FILE_IN_RUN).is_file() or folder.is_file():
        yield records_to_change(None, str(folder)), str(folder), False
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is a folder without records: name a run, or a folder that is not there yet"
        )
    if folder.is_dir():
        folder.rmdir()
    with appearing(folder, force=False) as partial:
        partial.mkdir()
        yield store_to_change(partial / FILE_IN_RUN), str(folder), True


def _place(run_dir: str) -> Path:
    """The folder that is meant: one that is there, of that name under ``runs/``, else one to make."""
    places = [Path(run_dir).expanduser(), RUNS / run_dir]
    return next((place for place in places if place.exists()), places[0])


async def _imported(files: Sequence[Path], store: LightningStore, progress: Progress) -> Imported:
    async with store:
        return await import_records(
            files, store, on_record=lambda number: progress.tell(counted(number, "record"))
        )


def report_of(imported: Imported, place: str, *, is_new: bool) -> dict[str, Any]:
    """Return what came in as plain values."""
    return {
        "store": place,
        "is_new": is_new,
        "new": {name: imported.new[name] for name in ("runs", "rollouts", "attempts", "spans")},
        "read": {name: imported.read[name] for name in ("runs", "rollouts", "spans")},
        "left_out": dict(imported.left_out.most_common()),
    }


def lines_of(report: Mapping[str, Any], *, width: int) -> list[str]:
    """Return the report for people."""
    new = _words(report["new"])
    lines = wrapped(f"{report['store']}: {new or 'nothing new'}", width=width)
    known = _words({name: number - report["new"][name] for name, number in report["read"].items()})
    below = [f"known before, left as they are: {known}"] if known else []
    below += [f"left out: {number} {cause}" for cause, number in report["left_out"].items()]
    if report["is_new"]:
        below.append(f"see them: agl ls rollouts --run-dir {shlex.quote(report['store'])}")
    return lines + [line for one in below for line in wrapped(one, width=width, indent="  ")]


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(counted(number, name.removesuffix("s")) for name, number in counts.items() if number)
