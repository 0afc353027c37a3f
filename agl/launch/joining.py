"""The role of a runner: execute the rollouts of a run whose algorithm is elsewhere, until that run ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agl.launch.local import Parts, started
from agl.store.base import LightningStore
from agl.store.paging import iter_runs
from agl.types import RunQuery, RunStatus

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the run is looked at; the store tells nobody that a run has ended."""


async def serve_run(
    parts: Parts,
    *,
    run_id: str,
    name: str,
    resumes: bool = False,
    note: Callable[[str], None] = log.info,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> RunStatus:
    """Execute the run's rollouts until it has ended; return how it ended.

    Args:
        parts: built; no engine, no proxy of its own: agents call the proxy beside the algorithm.
        run_id: of the run.
        name: of the run.
        resumes: it ended before and goes on: what its record says now is old.
        note: takes a line that a person should read.
        sleep: as ``asyncio.sleep``.
    """
    async with started(parts, run_id=run_id, note=note):
        return await run_ended(parts.store, run_id=run_id, name=name, resumes=resumes, note=note, sleep=sleep)


async def run_ended(
    store: LightningStore,
    *,
    run_id: str,
    name: str,
    resumes: bool,
    note: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]],
) -> RunStatus:
    """Wait until the run has ended, or has succeeded before; return how.

    A run that failed or was interrupted before this call may be resumed, and is waited for. So is one that is not
    there yet.
    """
    begun, told = False, ""
    while True:
        status = await status_of(store, run_id=run_id, name=name)
        if status == "running":
            begun = True
        elif status is not None and (begun or (status == "succeeded" and not resumes)):
            return status
        waits = _waits_for(run_id, status)
        if waits != told:
            told = waits
            note(f"runner: {waits}")
        await sleep(LOOK_SECONDS)


async def run_succeeded(
    store: LightningStore, *, run_id: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Wait until the run, seen at work, has succeeded. One that fails or is interrupted may be resumed."""
    begun = False
    while True:
        status = await status_of(store, run_id=run_id)
        if begun and status == "succeeded":
            return
        begun = begun or status == "running"
        await sleep(LOOK_SECONDS)


async def status_of(store: LightningStore, *, run_id: str, name: str | None = None) -> RunStatus | None:
    """Return the status of a run, None where the store has no such run."""
    async for run in iter_runs(store, RunQuery(name=name)):
        if run.run_id == run_id:
            return run.status
    return None


def _waits_for(run_id: str, status: RunStatus | None) -> str:
    if status is None:
        return f"waiting for the run {run_id} to begin"
    if status == "running":
        return f"serving the run {run_id} until it ends"
    return f"the run {run_id} ended before ({status}): waiting for it to be resumed"
