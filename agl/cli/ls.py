"""agl ls: runs, rollouts, workers and resources as tables or JSON."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agl.cli.lists.resources import version_lines, versions_of_store
from agl.cli.lists.rollouts import Wanted as Wanted
from agl.cli.lists.rollouts import matching_rollouts, query_from, rollout_lines
from agl.cli.lists.runs import run_lines, runs_here, runs_of_store
from agl.cli.lists.workers import worker_lines, workers_of_store
from agl.cli.named_records import one_of
from agl.cli.progress import Progress
from agl.cli.records import records_to_read
from agl.cli.run_folder import RUNS
from agl.cli.text import say, say_json, terminal_width
from agl.errors import ConfigError
from agl.store.base import LightningStore

KINDS = ("runs", "rollouts", "workers", "resources")
OPTIONS = {
    "run_id": "--run",
    "status": "--status",
    "mode": "--mode",
    "worker_id": "--worker",
    "group_id": "--group",
    "resources_id": "--resources",
    "min_reward": "--min-reward",
    "max_reward": "--max-reward",
    "cause": "--failed",
    "order": "--order",
}
"""Of rollouts, as the command line calls them; resources know ``--run`` too."""

Listed = tuple[list[str], Any]
"""The lines for people, and the same as plain values."""


def main(what: str, wanted: Wanted, *, store_url: str | None, run_dir: str | None, as_json: bool) -> None:
    """List, and print.

    Raises:
        ConfigError: an unknown word, an option of another list, or a place without records.
    """
    one_of(what, KINDS, "agl ls:")
    _refuse_options_of_others(what, wanted)
    if what == "rollouts":
        query_from(wanted)  # every mistake before records are opened
    with Progress(sys.stderr, "listing") as progress:
        lines, values = asyncio.run(_listed(what, wanted, store_url, run_dir, progress.draw))
    if as_json:
        say_json(values)
    else:
        say(lines)


def _refuse_options_of_others(what: str, wanted: Wanted) -> None:
    if what == "rollouts":
        return
    usual = Wanted()
    given = [option for name, option in OPTIONS.items() if getattr(wanted, name) != getattr(usual, name)]
    if what == "resources" and "--run" in given:
        given.remove("--run")
    if given:
        raise ConfigError(f"{given[0]} chooses among rollouts: agl ls rollouts {given[0]} ...")


async def _listed(
    what: str,
    wanted: Wanted,
    store_url: str | None,
    run_dir: str | None,
    on_progress: Callable[[str], None],
) -> Listed:
    now, width = time.time(), terminal_width()
    if what == "runs" and store_url is None and run_dir is None:
        states = await runs_here(wanted.limit, on_progress=on_progress)
        nothing = f"No runs under {RUNS.resolve()}: agl train begins one; --store-url lists those of a store"
        lines = run_lines(states, now=now, width=width) if states else [nothing]
        return lines, [state.as_json() for state in states]
    ways: dict[str, Callable[[], Awaitable[Listed]]] = {}
    async with records_to_read(store_url, run_dir) as store:
        ways = {
            "runs": lambda: _runs(store, wanted, now, width, on_progress),
            "rollouts": lambda: _rollouts(store, wanted, now, width, on_progress),
            "workers": lambda: _workers(store, wanted, now, width),
            "resources": lambda: _resources(store, wanted, now, width),
        }
        return await ways[what]()


async def _runs(
    store: LightningStore, wanted: Wanted, now: float, width: int, on_progress: Callable[[str], None]
) -> Listed:
    states = await runs_of_store(store, wanted.limit, on_progress=on_progress)
    lines = run_lines(states, now=now, width=width) if states else [f"No runs in {store.location}"]
    return lines, [state.as_json() for state in states]


async def _rollouts(
    store: LightningStore, wanted: Wanted, now: float, width: int, on_progress: Callable[[str], None]
) -> Listed:
    matches = await matching_rollouts(store, wanted, on_progress=on_progress)
    lines = rollout_lines(matches, wanted, place=store.location, now=now, width=width)
    return lines, [rollout.model_dump(mode="json") for rollout in matches.rollouts]


async def _workers(store: LightningStore, wanted: Wanted, now: float, width: int) -> Listed:
    states = await workers_of_store(store, wanted.limit)
    lines = worker_lines(states, place=store.location, now=now, width=width)
    return lines, [state.as_json() for state in states]


async def _resources(store: LightningStore, wanted: Wanted, now: float, width: int) -> Listed:
    versions = await versions_of_store(store, wanted.limit, run_id=wanted.run_id)
    lines = version_lines(versions, place=store.location, now=now, width=width)
    return lines, [
        {
            "resources_id": version.resources.resources_id,
            "version": version.resources.version,
            "run_id": version.resources.run_id,
            "created_at": version.resources.created_at,
            "latest": version.latest,
            "names": sorted(version.resources.resources),
        }
        for version in versions
    ]
