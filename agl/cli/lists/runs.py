"""Runs as a list: the folders under ``runs/``, or the runs of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agl.cli.run_state import RunState, run_folders, state_of_folder, state_of_run
from agl.cli.text import Column, age, duration, number, table, wrapped
from agl.store.base import LightningStore
from agl.types import RunQuery

COLUMNS = (
    Column(title="run", is_id=True),
    Column(title="command", rank=3),
    Column(title="status"),
    Column(title="stands at", rank=1),
    Column(title="reward", align="right"),
    Column(title="held out", align="right"),
    Column(title="began", align="right", rank=2),
    Column(title="took", align="right", rank=4),
    Column(title="recipe", rank=5, least=8),
)


async def runs_here(limit: int, *, on_progress: Callable[[str], None]) -> list[RunState]:
    """Return the newest runs under ``runs/``, those that began last first; ``on_progress`` hears whose turn it is."""
    states: list[RunState] = []
    folders = run_folders()[:limit]
    for place, folder in enumerate(folders, start=1):
        on_progress(f"reading {folder.name} {place}/{len(folders)}")
        states.append(await state_of_folder(folder))
    return states


async def runs_of_store(
    store: LightningStore, limit: int, *, on_progress: Callable[[str], None]
) -> list[RunState]:
    """Return the newest runs of a store."""
    runs = (await store.query_runs(RunQuery(order="desc", limit=limit))).items
    states: list[RunState] = []
    for place, run in enumerate(runs, start=1):
        on_progress(f"reading {run.run_id} {place}/{len(runs)}")
        states.append(await state_of_run(run, store))
    return states


def run_lines(states: Sequence[RunState], *, now: float, width: int) -> list[str]:
    """Return the runs as a table; ``now`` is the time that ages count from."""
    rows = [_row(state, now) for state in states]
    lines = table(COLUMNS, rows, width=width)
    for state in states:
        if state.problem:
            lines += ["", *wrapped(f"{state.run_id}: {state.problem}", width=width)]
    return lines


def _row(state: RunState, now: float) -> list[object]:
    begun, ended = state.created_at, state.finished_at
    if ended is None and state.status == "running":
        ended = now
    return [
        state.run_id,
        state.command,
        state.status,
        state.stands_at,
        number(state.reward),
        number(state.held_out_reward),
        None if begun is None else f"{age(now - begun)} ago",
        None if begun is None or ended is None else duration(ended - begun),
        state.name,
    ]
