"""agl regrade: another grader on recorded rollouts; old and new rewards side by side."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

from agl.agents.load import load_object
from agl.cli.changed_records import place_of, to_change
from agl.cli.named_records import find, unknown_id
from agl.cli.progress import Progress
from agl.cli.records import records_to_read
from agl.cli.run_folder import run_folder
from agl.cli.text import Column, counted, fields, number, say, say_json, shortened, table, terminal_width
from agl.errors import ConfigError, RunStoppedError
from agl.launch.regrading import RegradeCounts, Regraded, Regrading, count_regraded
from agl.launch.stopping import run_interruptibly
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import Rollout, RolloutQuery

SHOWN = 10
"""Rollouts listed of those that changed, and of those whose grader failed; ``--json`` has all."""
_PAGE = 200
_CHANGED = (
    Column(title="rollout", is_id=True),
    Column(title="was", align="right"),
    Column(title="is", align="right"),
)


def main(
    ids: Sequence[str],
    *,
    grader: str,
    settings: Sequence[str],
    write: bool,
    store_url: str | None,
    run_dir: str | None,
    as_json: bool,
) -> None:
    """Grade and print.

    Raises:
        ConfigError: an unknown id, or no such grader.
        StoreError: with ``write``: the store is another process's.
        RunStoppedError: the grader failed on every rollout.
    """
    with redirect_stdout(sys.stderr), Progress(sys.stderr, "grading") as progress:
        # what a grader prints goes to standard error: the report has standard output for itself
        function, given = _function(grader), settings_given(settings)
        ids, run_dir = _in_folder(list(dict.fromkeys(ids)), store_url, run_dir)

        async def work() -> tuple[list[Regraded], Counter[str]]:
            place = await place_of(ids[0] if ids else None, store_url, run_dir, kinds=("rollout", "run"))
            opened = to_change(store_url, place) if write else records_to_read(store_url, place)
            async with opened as store:
                return await _graded(
                    store, ids, function, name=grader, settings=given, progress=progress, writes=write
                )

        found, not_graded = run_interruptibly(work)
    counts = count_regraded(found, not_graded)
    if as_json:
        say_json({"grader": grader, **counts.as_json(), "rollouts": [one.as_json() for one in found]})
    else:
        say(_lines(grader, counts, found, wrote=write, width=terminal_width()))
    failures = [one for one in found if one.cause is not None]
    if failures and not counts.graded:
        raise RunStoppedError(
            f"--grader {grader} gave no reward to any rollout ({len(failures)} failures); the first:"
            f" {failures[0].cause}: {failures[0].message}"
        )


def _function(target: str) -> Callable[..., object]:
    found = load_object(target)
    if not callable(found) or isinstance(found, type):
        raise ConfigError(f"--grader {target} is no function: name one that returns a reward")
    return found


def settings_given(texts: Sequence[str]) -> dict[str, Any]:
    """Return what ``--set NAME=VALUE`` says; a value is JSON, or text where it is not.

    Raises:
        ConfigError: there is no ``=``.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise ConfigError(
                f"--set {text}: write NAME=VALUE, with the name of one of the grader's parameters"
            )
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def _in_folder(ids: list[str], store_url: str | None, run_dir: str | None) -> tuple[list[str], str | None]:
    """Return the ids with runs named by their ids, and the folder where one run is named by its folder."""
    if len(ids) == 1 and store_url is None and run_dir is None:
        folder = run_folder(ids[0])
        if folder is not None:
            return [folder.resolve().name], str(folder)
    return ids, run_dir


async def _graded(
    store: LightningStore,
    ids: Sequence[str],
    function: Callable[..., object],
    *,
    name: str,
    settings: dict[str, Any],
    progress: Progress,
    writes: bool,
) -> tuple[list[Regraded], Counter[str]]:
    queries = await _queries(store, ids)
    regrading = Regrading(
        store,
        function,
        name=name,
        settings=settings,
        writes=writes,
        now_ns=time.time_ns,
        new_span_id=lambda: secrets.token_hex(8),
    )
    found: list[Regraded] = []
    not_graded: Counter[str] = Counter()
    async for one in regrading.regraded(_rollouts(store, queries, replays=bool(ids)), not_graded):
        found.append(one)
        progress.draw(f"graded {counted(len(found), 'rollout')}")
    return found, not_graded


async def _queries(store: LightningStore, ids: Sequence[str]) -> list[RolloutQuery]:
    """One query for each run and one for all rollouts that are named; everything where nothing is."""
    if not ids:
        return [RolloutQuery(limit=_PAGE)]
    queries: list[RolloutQuery] = []
    named: list[str] = []
    for one in ids:
        record = await find(store, one, kinds=("rollout", "run"))
        if isinstance(record, Rollout):
            named.append(one)
        elif record is not None:
            queries.append(RolloutQuery(run_id=one, limit=_PAGE))
        else:
            raise await unknown_id(store, one, kinds=("rollout", "run"))
    if named:
        queries.append(RolloutQuery(rollout_ids=tuple(named), limit=_PAGE))
    return queries


async def _rollouts(
    store: LightningStore, queries: Sequence[RolloutQuery], *, replays: bool
) -> AsyncIterator[Rollout]:
    """The rollouts, each once; of replays those alone that were asked for."""
    seen = set[str]()
    for query in queries:
        async for rollout in iter_rollouts(store, query):
            if len(queries) > 1 and rollout.rollout_id in seen:  # of a run that is named, too
                continue
            if not replays and "replay_of" in rollout.metadata:
                continue
            seen.update([rollout.rollout_id] if len(queries) > 1 else [])
            yield rollout


def _lines(
    grader: str, counts: RegradeCounts, found: Sequence[Regraded], *, wrote: bool, width: int
) -> list[str]:
    graded = f"{counted(counts.graded, 'rollout')}, {counts.changed:,} of them have another reward now"
    causes = ", ".join(f"{cause} {count}" for cause, count in counts.failed.most_common())
    statuses = ", ".join(f"{status} {count}" for status, count in counts.not_graded.most_common())
    lines = fields(
        [
            ("Grader", grader),
            ("Graded", graded),
            ("Mean", f"{number(counts.before)} before, {number(counts.after)} now"),
            ("No reward", f"{counts.without_reward:,} (not in the mean)" if counts.without_reward else None),
            ("Failed", f"{causes} (the grader; not in the mean)" if causes else None),
            ("Not graded", f"{statuses}: their agents returned nothing" if statuses else None),
        ],
        width=width,
    )
    changed = [one for one in found if one.changed]
    if changed:
        rows = [(one.rollout_id, number(one.before), _now(one)) for one in changed[:SHOWN]]
        lines += ["", *table(_CHANGED, rows, width=width), *_more(len(changed))]
    failures = [one for one in found if one.cause is not None]
    if failures:
        lines.append("")
        for one in failures[:SHOWN]:
            lines += [one.rollout_id, f"    {shortened(f'{one.cause}: {one.message}', width - 4)}"]
        lines += _more(len(failures))
    written = (
        f"{counted(counts.written, 'new reward')} written"
        if wrote
        else "Nothing was written (--write keeps the new rewards)"
    )
    return [*lines, "", written]


def _now(one: Regraded) -> str:
    return number(None if one.after is None else one.after.value)


def _more(count: int) -> list[str]:
    return [f"... and {count - SHOWN:,} more (--json lists all)"] if count > SHOWN else []
