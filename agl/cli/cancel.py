"""agl cancel: cancel rollouts, or all open ones of a run, and say what each was and is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import typer

from agl.cli.changed_records import place_of, rollout_named, to_change
from agl.cli.named_records import find, unknown_id
from agl.cli.progress import Progress
from agl.cli.text import Column, counted, say, say_json, table, terminal_width
from agl.errors import ConfigError
from agl.launch.cancelling import Cancel, cancel_run, count_open
from agl.launch.cancelling import cancel as cancel_one
from agl.store.base import LightningStore
from agl.types import RolloutQuery

SHOWN = 20
"""Rollouts of a run that are listed; ``--json`` has all."""
_COLUMNS = (
    Column(title="rollout", is_id=True),
    Column(title="was"),
    Column(title="is"),
    Column(title="", least=10),
)


def main(
    ids: Sequence[str],
    *,
    run: str | None,
    yes: bool,
    store_url: str | None,
    run_dir: str | None,
    as_json: bool,
) -> None:
    """Cancel and print.

    Raises:
        ConfigError: an unknown id, or nobody said yes.
        StoreError: the store is another process's.
    """
    if bool(ids) == (run is not None):
        raise ConfigError("agl cancel takes either ids of rollouts, or --run RUN for all open ones of a run")
    if run is None:
        found = asyncio.run(_cancel_ids(list(dict.fromkeys(ids)), store_url, run_dir))
    else:
        found = asyncio.run(_cancel_run(run, yes=yes, store_url=store_url, run_dir=run_dir))
    if as_json:
        say_json({"run_id": run, "rollouts": [one.as_json() for one in found]})
        return
    say(_lines(found, terminal_width()))


async def _cancel_ids(ids: Sequence[str], store_url: str | None, run_dir: str | None) -> list[Cancel]:
    place = await place_of(ids[0], store_url, run_dir, kinds=("rollout",))
    async with to_change(store_url, place) as store:
        rollouts = [
            await rollout_named(store, rollout_id) for rollout_id in ids
        ]  # all, before the first changes
        return [await cancel_one(store, rollout) for rollout in rollouts]


async def _cancel_run(run: str, *, yes: bool, store_url: str | None, run_dir: str | None) -> list[Cancel]:
    place = await place_of(run, store_url, run_dir, kinds=("run",))
    async with to_change(store_url, place) as store:
        if not await _knows(store, run):
            raise await unknown_id(store, run, kinds=("run",))
        counts = await count_open(store, run)
        total = sum(counts.values())
        if total and not yes:
            _ask(run, total, ", ".join(f"{count:,} {status}" for status, count in counts.items()))
        found: list[Cancel] = []
        with Progress(sys.stderr, "cancelling") as progress:
            async for one in cancel_run(store, run):
                found.append(one)
                progress.draw(f"cancelling {len(found)}/{max(total, len(found))}")
        return found


async def _knows(store: LightningStore, run: str) -> bool:
    """Whether there is a run of that id: in the book, or as the label of a rollout."""
    if await find(store, run, kinds=("run",)) is not None:
        return True
    return bool((await store.query_rollouts(RolloutQuery(run_id=run, limit=1))).items)


def _ask(run: str, total: int, counts: str) -> None:
    """Raise a ConfigError unless a person says yes."""
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{counted(total, 'rollout')} of run {run} ({counts}) would be cancelled: add --yes"
        )
    if not typer.confirm(f"Cancel {counted(total, 'rollout')} of run {run} ({counts})?", err=True):
        raise ConfigError("nothing was cancelled")


def _lines(found: Sequence[Cancel], width: int) -> list[str]:
    if not found:
        return ["No rollout of the run is open: there is nothing to cancel."]
    rows = [(one.rollout_id, one.was, one.now, _words(one)) for one in found[:SHOWN]]
    lines = table(_COLUMNS, rows, width=width)
    if len(found) > SHOWN:
        lines.append(f"... and {len(found) - SHOWN:,} more (--json lists all)")
    changed = sum(one.changed and one.now == "cancelled" for one in found)
    left = len(found) - changed
    return [
        *lines,
        "",
        f"{counted(changed, 'rollout')} cancelled" + (f", {left:,} had ended before" if left else ""),
    ]


def _words(one: Cancel) -> str:
    if one.was == "cancelled":
        return "was cancelled before"
    if one.now != "cancelled":
        return "has ended, and stays so"
    return ""
