"""agl store gc: forget runs, or the spans of rollouts that finished long ago."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path

from agl.cli.store.place import existing_store
from agl.errors import ConfigError, ConflictError, NotFoundError
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import Rollout, RolloutQuery, RolloutStatus, Run, RunQuery, SpanQuery

Say = Callable[[str], None]

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_TERMINAL: tuple[RolloutStatus, ...] = ("succeeded", "failed", "cancelled")
_AT_ONCE = 32
"""Queries under way together; more only wait for each other in the store."""


def main(
    overrides: Sequence[str],
    *,
    runs: Sequence[str],
    older_than: str | None,
    dry_run: bool,
    store_url: str | None,
    token: str | None,
    config_dir: Path | None,
) -> None:
    """Delete, and print what went; with ``dry_run`` only print.

    Raises:
        ConfigError: a mistake in the options or settings.
        ConflictError: a run that is to go is still running.
        NotFoundError: there is no such run.
    """
    if not runs and older_than is None:
        raise ConfigError("say what may go: --run RUN_ID, --older-than 30d, or both for old spans of one run")
    before = None if older_than is None else time.time() - age_seconds(older_than)
    named = existing_store(overrides, store_url=store_url, token=token, config_dir=config_dir)

    async def collected() -> None:
        async with named as store:
            if dry_run:
                await would_collect(store, runs=runs, finished_before=before, say=print)
                return
            size = await _size_bytes(store)
            await collect(store, runs=runs, finished_before=before, say=print)
            now = await _size_bytes(store)
            if size is not None and now is not None:
                print(f"{store.location}: {megabytes(size)} before, {megabytes(now)} now")

    asyncio.run(collected())


def age_seconds(text: str) -> float:
    """Return an age such as ``30d``, ``12h``, ``90m``, ``45s`` or ``2w`` in seconds.

    Raises:
        ConfigError: it is none.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"--older-than {text}: a number and s, m, h, d or w, as in 30d")
    return float(match.group(1)) * _SECONDS[match.group(2)]


async def collect(
    store: LightningStore, *, runs: Sequence[str], finished_before: float | None, say: Say
) -> None:
    """Delete the runs whole, or where a time is given the spans (of the runs) of rollouts that finished before it."""
    if finished_before is None:
        for run_id in runs:
            say(f"run {run_id}: deleted {counted(await store.delete_run(run_id))}")
        return
    for run_id in runs or [None]:
        gone = await store.delete_spans(finished_before=finished_before, run_id=run_id)
        say(f"{_old_spans(finished_before, run_id)}: deleted {gone}")


async def would_collect(
    store: LightningStore, *, runs: Sequence[str], finished_before: float | None, say: Say
) -> None:
    """Say what ``collect`` would delete or refuse, and change nothing."""
    if finished_before is None:
        known = await _runs(store)
        for run_id in runs:
            say(f"run {run_id}: would delete {counted(await _counts(store, run_id, known.get(run_id)))}")
        return
    for run_id in runs or [None]:
        number = await _rollouts_with_spans(store, finished_before, run_id)
        say(f"{_old_spans(finished_before, run_id)}: would delete those of {number} rollouts")


def counted(counts: dict[str, int]) -> str:
    """Return ``12 rollouts, 96 spans``, or ``nothing but its name``."""
    named = [f"{number} {what}" for what, number in counts.items() if number]
    return ", ".join(named) or "nothing but its name"


def megabytes(size_bytes: int) -> str:
    """Return a size for people."""
    return f"{size_bytes / 1e6:.1f} MB"


async def _size_bytes(store: LightningStore) -> int | None:
    return (await store.health()).get("size_bytes")


def _old_spans(finished_before: float, run_id: str | None) -> str:
    moment = datetime.fromtimestamp(finished_before).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"spans of rollouts {'' if run_id is None else f'of run {run_id} '}finished before {moment}"


async def _runs(store: LightningStore) -> dict[str, Run]:
    found: dict[str, Run] = {}
    cursor: str | None = None
    while True:
        page = await store.query_runs(RunQuery(cursor=cursor))
        found |= {run.run_id: run for run in page.items}
        cursor = page.next_cursor
        if cursor is None:
            return found


async def _counts(store: LightningStore, run_id: str, run: Run | None) -> dict[str, int]:
    """What a deletion of the run would take away, refused where that would be."""
    statistics = await store.statistics(run_id=run_id)
    rollouts: dict[str, int] = statistics["rollouts"]
    if run is None and not any(rollouts.values()):
        raise NotFoundError(f"no run has the id {run_id!r}")
    still_open = sum(number for status, number in rollouts.items() if status not in _TERMINAL)
    if still_open:
        raise ConflictError(f"run {run_id} has {still_open} open rollouts: cancel them before it is deleted")
    if run is not None and run.status == "running":
        raise ConflictError(f"run {run_id} is running: end it before it is deleted")
    return {
        "rollouts": sum(rollouts.values()),
        "attempts": sum(statistics["attempts"].values()),
        "spans": statistics["spans"],
    }


async def _rollouts_with_spans(store: LightningStore, finished_before: float, run_id: str | None) -> int:
    found = 0
    finished = [rollout.rollout_id async for rollout in _finished(store, finished_before, run_id)]
    for start in range(0, len(finished), _AT_ONCE):
        some = finished[start : start + _AT_ONCE]
        pages = await asyncio.gather(
            *(store.query_spans(SpanQuery(rollout_id=rollout_id, limit=1)) for rollout_id in some)
        )
        found += sum(bool(page.items) for page in pages)
    return found


async def _finished(
    store: LightningStore, finished_before: float, run_id: str | None
) -> AsyncIterator[Rollout]:
    query = RolloutQuery(run_id=run_id, status=_TERMINAL, sort_by="finished_at")
    async for rollout in iter_rollouts(store, query):
        if rollout.finished_at is None or rollout.finished_at >= finished_before:
            return
        yield rollout
