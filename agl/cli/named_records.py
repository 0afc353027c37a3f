"""Find the record that an id means: a rollout, a run, resources, a worker or an attempt, and where it is kept."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from agl.cli.progress import Progress
from agl.cli.records import file_of_records, newest_run_folder, records_to_read
from agl.cli.run_folder import RUNS, SETTINGS_FILE
from agl.cli.text import shortened
from agl.errors import ConfigError, InvalidRequestError, NotFoundError
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN, store_to_read
from agl.store.paging import iter_attempts, iter_runs
from agl.types import (
    Attempt,
    AttemptQuery,
    NamedResources,
    ResourcesQuery,
    Rollout,
    RolloutQuery,
    Run,
    RunQuery,
    SpanQuery,
    Worker,
    WorkerQuery,
)

Kind = Literal["rollout", "run", "resources", "worker", "attempt"]
Named = Rollout | Run | NamedResources | Worker | Attempt

KINDS: tuple[Kind, ...] = ("rollout", "run", "resources", "worker", "attempt")
_FORMS: dict[str, Kind] = {"ro-": "rollout", "run-": "run", "rs-": "resources", "at-": "attempt"}
"""How the ids begin that a store makes; callers may give others."""
_CANDIDATES = 1000
"""The newest records of each kind, among whose ids like ones are looked for."""
_WORD = 60
"""Columns of an id in a message."""


@asynccontextmanager
async def record_named(
    wanted: str, store_url: str | None, run_dir: str | None, *, kinds: Sequence[Kind] = KINDS
) -> AsyncGenerator[tuple[LightningStore, Named]]:
    """Yield the open store, to read, that has a record of that id, and the record.

    Args:
        wanted: its id.
        store_url: of a store that is served; the only one that is asked then.
        run_dir: of a run, likewise. Without both all runs under ``runs/`` are asked: first those whose name the id
            begins with, then the newest.
        kinds: what it may be.

    Raises:
        ConfigError: nobody knows it; like ids are named.
    """
    if store_url is not None or run_dir is not None:
        store = records_to_read(store_url, run_dir)
    else:
        file = await file_with(wanted, kinds=kinds)
        store = store_to_read(str(file))
    async with store:
        record = await find(store, wanted, kinds=kinds)
        if record is None:
            everywhere = None if store_url is not None or run_dir is not None else f"any run under {RUNS}"
            raise await unknown_id(store, wanted, kinds=kinds, place=everywhere)
        yield store, record


async def file_with(wanted: str, *, kinds: Sequence[Kind] = KINDS) -> Path:
    """Return the store's file of the run under ``runs/`` that has a record of that id; the newest where none has.

    Raises:
        ConfigError: there is no run with records.
    """
    newest = file_of_records(None)
    with Progress(sys.stderr, "looking") as progress:
        for file in _files(wanted, newest):
            progress.draw(f"looking for {shortened(wanted, 40)} in {file.parent.name}")
            async with store_to_read(str(file)) as store:
                if await find(store, wanted, kinds=kinds) is not None:
                    return file
    return newest


def _files(wanted: str, newest: Path) -> Iterator[Path]:
    """The stores of the runs here: of those whose name begins the id, of the newest, then the others back in time."""
    found = [
        file
        for file in RUNS.glob(f"*/{FILE_IN_RUN}")
        if file.is_file() and (file.parent / SETTINGS_FILE).is_file()
    ]
    found.sort(key=lambda file: (file.parent / SETTINGS_FILE).stat().st_mtime, reverse=True)
    named = [file for file in found if wanted.startswith(file.parent.name)]
    named.sort(key=lambda file: -len(file.parent.name))
    yield from dict.fromkeys([*named, newest, *found])


async def find(store: LightningStore, wanted: str, *, kinds: Sequence[Kind] = KINDS) -> Named | None:
    """Return the record of that id, None where there is none; the kind that the id looks like is asked for first."""
    if not wanted:
        return None
    likely = next((kind for form, kind in _FORMS.items() if wanted.startswith(form)), None)
    ways: dict[Kind, Callable[[LightningStore, str], Awaitable[Named | None]]] = {
        "rollout": _rollout,
        "run": _run,
        "resources": _resources,
        "worker": _worker,
        "attempt": _attempt,
    }
    for kind in sorted(kinds, key=lambda kind: (kind != likely, KINDS.index(kind))):
        record = await ways[kind](store, wanted)
        if record is not None:
            return record
    return None


async def _rollout(store: LightningStore, wanted: str) -> Rollout | None:
    try:
        return await store.get_rollout_by_id(wanted)
    except (NotFoundError, InvalidRequestError):
        return None


async def _run(store: LightningStore, wanted: str) -> Run | None:
    async for run in iter_runs(store, RunQuery(order="desc")):
        if run.run_id == wanted:
            return run
    return None


async def _resources(store: LightningStore, wanted: str) -> NamedResources | None:
    try:
        return await store.get_resources_by_id(wanted)
    except (NotFoundError, InvalidRequestError):
        return None


async def _worker(store: LightningStore, wanted: str) -> Worker | None:
    query = WorkerQuery()
    while True:
        page = await store.query_workers(query)
        for worker in page.items:
            if worker.worker_id == wanted:
                return worker
        if page.next_cursor is None:
            return None
        query = query.model_copy(update={"cursor": page.next_cursor})


async def _attempt(store: LightningStore, wanted: str) -> Attempt | None:
    """Attempts have no index of their own: by its spans, else one by one where the id is of a store's form."""
    spans = (
        (await store.query_spans(SpanQuery(attempt_id=wanted, limit=1))).items if wanted != "latest" else ()
    )
    if spans and spans[0].rollout_id is not None:
        attempts = iter_attempts(store, AttemptQuery(rollout_id=spans[0].rollout_id))
    elif wanted.startswith("at-"):
        attempts = iter_attempts(store, AttemptQuery(order="desc"))
    else:
        return None
    async for attempt in attempts:
        if attempt.attempt_id == wanted:
            return attempt
    return None


async def unknown_id(
    store: LightningStore, wanted: str, *, kinds: Sequence[Kind] = KINDS, place: str | None = None
) -> ConfigError:
    """Return the error that says that no record has that id, with like ids and the command that lists them all.

    Args:
        store: that was asked; like ids are looked for in it.
        wanted: the id.
        kinds: what it may be.
        place: where it was looked for; None is that store.
    """
    by_kind = {kind: ids for kind, ids in (await _ids(store)).items() if kind in kinds}
    like = close_matches(wanted, [one for ids in by_kind.values() for one in ids])
    kind = next((kind for kind, ids in by_kind.items() if like and like[0] in ids), None)
    kind = kind or next((kind for form, kind in _FORMS.items() if wanted.startswith(form)), kinds[0])
    what = f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
    hint = f"; did you mean {' or '.join(like)}?" if like else ""
    listed = {"attempt": "rollouts", "resources": "resources"}.get(kind, f"{kind}s")
    return ConfigError(
        f"no {what} is called {shortened(wanted, _WORD)!r} in {place or store.location}{hint} (agl ls {listed} lists"
        " what is there)"
    )


async def _ids(store: LightningStore) -> dict[Kind, list[str]]:
    """The newest ids of each kind that has a list."""
    newest = RolloutQuery(order="desc", limit=_CANDIDATES)
    rollouts = (await store.query_rollouts(newest)).items
    runs = (await store.query_runs(RunQuery(order="desc", limit=_CANDIDATES))).items
    resources = (await store.list_resources(ResourcesQuery(order="desc", limit=_CANDIDATES))).items
    workers = (await store.query_workers(WorkerQuery(order="desc", limit=_CANDIDATES))).items
    return {
        "run": [run.run_id for run in runs],
        "rollout": [rollout.rollout_id for rollout in rollouts],
        "resources": [one.resources_id for one in resources],
        "worker": [worker.worker_id for worker in workers],
    }


def place_options(store: LightningStore, *, store_url: str | None, run_dir: str | None) -> str:
    """Return the options by which another command finds the same records; none where they are the newest run's."""
    if store_url is not None:
        return f"--store-url {shlex.quote(store_url)}"
    if run_dir is not None:
        return f"--run-dir {shlex.quote(run_dir)}"
    newest = newest_run_folder()
    folder = Path(store.location).parent
    return "" if newest == folder else f"--run-dir {shlex.quote(str(folder))}"


def close_matches(wanted: str, ids: Sequence[str], *, most: int = 3) -> list[str]:
    """Return the ids that are most like what was given: those that begin with it, then those spelt alike."""
    unique = list(dict.fromkeys(ids))
    begun = [one for one in unique if wanted and one.startswith(wanted)]
    alike = difflib.get_close_matches(wanted, unique, n=most, cutoff=0.7)
    return list(dict.fromkeys([*begun, *alike]))[:most]


def one_of(value: str, known: Sequence[str], what: str) -> str:
    """Return the value.

    Raises:
        ConfigError: it is none of those that are known; the message names the nearest.
    """
    if value in known:
        return value
    nearest = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ConfigError(f"{what} {shortened(value, _WORD)!r} is none of {', '.join(known)}{hint}")
