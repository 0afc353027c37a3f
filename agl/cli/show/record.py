"""agl show: find the record that an id means, and print it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agl.cli.lists.workers import state_of_worker
from agl.cli.named_records import Named, place_options, record_named
from agl.cli.progress import Progress
from agl.cli.run_folder import RUNS, SETTINGS_FILE, run_folder
from agl.cli.run_state import run_folders, run_of_store, settings_of, state_of_folder, state_of_run
from agl.cli.show.resources import resources_as_json, resources_lines, worker_lines
from agl.cli.show.rollout import rollout_as_json, rollout_lines, rollout_record
from agl.cli.show.run import (
    RunRecord,
    counts_of,
    metrics_of,
    metrics_of_folder,
    report_of_folder,
    run_as_json,
    run_lines,
)
from agl.cli.text import say, say_json, terminal_width
from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN, store_to_read
from agl.types import Attempt, NamedResources, Rollout, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says beside the id.

    Args:
        attempt: of a rollout, its number or id; None is the newest.
        metrics: of a run, names of the numbers to draw.
        full: long texts to their end.
        store_url: of a store that is served.
        run_dir: of the run that has the record.
        as_json: print plain values.
    """

    attempt: str | None = None
    metrics: Sequence[str] = ()
    full: bool = False
    store_url: str | None = None
    run_dir: str | None = None
    as_json: bool = False


Shown = tuple[list[str], dict[str, Any]]
"""The lines for people, and the same as plain values."""
OnProgress = Callable[[str], None]


def main(wanted: str | None, options: Options) -> None:
    """Show, and print.

    Raises:
        ConfigError: nobody knows the id, or the options do not fit what it means.
    """
    folder = _folder(wanted, options)
    with Progress(sys.stderr, "reading") as progress:
        if folder is not None:
            lines, values = asyncio.run(_run_of_folder(folder, options, progress.draw))
        else:
            assert wanted is not None
            lines, values = asyncio.run(_record(wanted, options, progress.draw))
    if options.as_json:
        say_json(values)
    else:
        say(lines)


def _folder(wanted: str | None, options: Options) -> Path | None:
    """The folder of the run that is meant, None where it is no run that has one here."""
    if wanted is not None:
        return None if options.store_url is not None else run_folder(wanted)
    if options.store_url is not None:
        raise ConfigError(
            "agl show --store-url URL: give an id, too (agl ls runs --store-url URL lists the runs)"
        )
    folder = run_folder(options.run_dir) if options.run_dir is not None else next(iter(run_folders()), None)
    if folder is None:
        named = f"there is no run {options.run_dir}" if options.run_dir else f"{RUNS.resolve()} has no run"
        raise ConfigError(f"{named}: give an id, or a folder with a {SETTINGS_FILE}")
    return folder


async def _run_of_folder(folder: Path, options: Options, on_progress: OnProgress) -> Shown:
    _refuse_attempt(options, "a run")
    on_progress(f"reading {folder.name}")
    state = await state_of_folder(folder)
    record = RunRecord(
        state=state,
        settings=settings_of(folder),
        metrics=metrics_of_folder(folder),
        report=report_of_folder(folder),
    )
    if state.problem is None and _has_records(folder):
        async with store_to_read(str(folder)) as store:
            run = await run_of_store(store, state.run_id)
            if run is not None:
                known = await _run_record(run, store, on_progress)
                record = RunRecord(
                    state=state,
                    settings=known.settings or record.settings,
                    git_commit=known.git_commit,
                    counts=known.counts,
                    causes=known.causes,
                    metrics=record.metrics or known.metrics,
                    resources=known.resources,
                    report=record.report,
                )
    return _shown_run(record, options)


def _has_records(folder: Path) -> bool:
    return (folder / FILE_IN_RUN).is_file()


async def _run_record(run: Run, store: LightningStore, on_progress: OnProgress) -> RunRecord:
    counts, causes = await counts_of(store, run.run_id, on_progress=on_progress)
    return RunRecord(
        state=await state_of_run(run, store),
        settings=run.settings,
        git_commit=run.git_commit,
        counts=counts,
        causes=causes,
        metrics=await metrics_of(store, run.run_id),
        resources=await store.get_latest_resources(run_id=run.run_id),
    )


def _shown_run(record: RunRecord, options: Options) -> Shown:
    lines = run_lines(record, options.metrics, now=time.time(), width=terminal_width(), full=options.full)
    return lines, run_as_json(record)


async def _record(wanted: str, options: Options, on_progress: OnProgress) -> Shown:
    async with record_named(wanted, options.store_url, options.run_dir) as (store, record):
        on_progress(f"reading {store.location}")
        return await _shown(record, store, options, on_progress)


async def _shown(record: Named, store: LightningStore, options: Options, on_progress: OnProgress) -> Shown:
    if isinstance(record, Run):
        _refuse_attempt(options, "a run")
        place = place_options(store, store_url=options.store_url, run_dir=options.run_dir)
        return _shown_run(replace(await _run_record(record, store, on_progress), place=place), options)
    if options.metrics:
        raise ConfigError(f"--metric {options.metrics[0]}: numbers are of runs; leave it out")
    if isinstance(record, Attempt):
        _refuse_attempt(options, "an attempt already")
        rollout = await store.get_rollout_by_id(record.rollout_id)
        return await _shown_rollout(rollout, record.attempt_id, store, options)
    if isinstance(record, Rollout):
        return await _shown_rollout(record, options.attempt, store, options)
    if isinstance(record, NamedResources):
        _refuse_attempt(options, "resources")
        latest = await store.get_latest_resources()
        is_latest = latest is not None and latest.resources_id == record.resources_id
        lines = resources_lines(record, is_latest=is_latest, width=terminal_width())
        return lines, resources_as_json(record, is_latest=is_latest)
    _refuse_attempt(options, "a worker")
    state = await state_of_worker(store, record)
    lines = worker_lines(state, now=time.time(), width=terminal_width())
    return lines, {"kind": "worker", "worker": state.as_json()}


async def _shown_rollout(
    rollout: Rollout, attempt: str | None, store: LightningStore, options: Options
) -> Shown:
    record = await rollout_record(store, rollout, attempt)
    place = place_options(store, store_url=options.store_url, run_dir=options.run_dir)
    lines = rollout_lines(record, place=place, width=terminal_width(), full=options.full)
    return lines, rollout_as_json(record)


def _refuse_attempt(options: Options, what: str) -> None:
    if options.attempt is not None:
        raise ConfigError(
            f"--attempt {options.attempt}: that id is of {what}; --attempt chooses among a rollout's"
        )
