"""Rollouts as a list: filters, the order, and a line each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from agl.cli.named_records import close_matches, one_of
from agl.cli.text import Column, age, counted, duration, number, plain, table, wrapped
from agl.errors import ConfigError
from agl.evaluation.counts import cause_of
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts, iter_runs
from agl.types import Json, Rollout, RolloutQuery
from agl.types.rollout import Mode, RolloutStatus

ORDERS = {
    "newest": ("created_at", "desc"),
    "oldest": ("created_at", "asc"),
    "reward": ("reward", "desc"),
    "lowest": ("reward", "asc"),
}
COLUMNS = (
    Column(title="rollout", is_id=True),
    Column(title="status", least=12),
    Column(title="reward", align="right"),
    Column(title="mode", rank=3),
    Column(title="tries", align="right", rank=5),
    Column(title="age", align="right", rank=2),
    Column(title="took", align="right", rank=4),
    Column(title="task", least=12, rank=1),
)
_PAGE = 1000
_TOLD_EVERY = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rollouts, and how many of them; what is None or empty matches all.

    Args:
        run_id: of this run.
        status: in any of these.
        mode: of these tasks.
        worker_id: with an attempt of this worker.
        group_id: of this group.
        resources_id: that were given these.
        min_reward: with at least this reward.
        max_reward: with at most this reward.
        cause: that failed by this cause, in capitals or not.
        limit: the most.
        order: one of ``ORDERS``.
    """

    run_id: str | None = None
    status: Sequence[str] = ()
    mode: str | None = None
    worker_id: str | None = None
    group_id: str | None = None
    resources_id: str | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    cause: str | None = None
    limit: int = 30
    order: str = "newest"

    @property
    def is_all(self) -> bool:
        """Whether nothing but the run chooses among the rollouts."""
        return self == Wanted(run_id=self.run_id, limit=self.limit, order=self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The rollouts that were asked for.

    Args:
        rollouts: at most so many as asked for, in the order asked for.
        has_more: whether there are more of them.
        total: how many there are, where that is known without reading them all.
        causes: of the failed ones that were read, where a cause was asked for.
    """

    rollouts: list[Rollout]
    has_more: bool = False
    total: int | None = None
    causes: Counter[str] = field(default_factory=Counter[str])


def query_from(wanted: Wanted) -> RolloutQuery:
    """Return the part of what is wanted that a store can tell apart.

    Raises:
        ConfigError: a word that is not known.
    """
    for status in wanted.status:
        one_of(status, get_args(RolloutStatus), "--status")
    if wanted.mode is not None:
        one_of(wanted.mode, get_args(Mode), "--mode")
    for name in ("min_reward", "max_reward"):
        bound = getattr(wanted, name)
        if bound is not None and math.isnan(bound):
            raise ConfigError(f"--{name.replace('_', '-')} {bound}: a number")
    sort_by, direction = ORDERS[one_of(wanted.order, list(ORDERS), "--order")]
    status = tuple(cast("Sequence[RolloutStatus]", wanted.status)) or None
    if wanted.cause is not None:
        if status is not None and "failed" not in status:
            raise ConfigError(f"--failed {wanted.cause} is about failed rollouts: leave --status out")
        status = ("failed",)
    return RolloutQuery(
        run_id=wanted.run_id,
        status=status,
        mode=cast("Mode | None", wanted.mode),
        worker_id=wanted.worker_id,
        group_id=wanted.group_id,
        resources_id=wanted.resources_id,
        sort_by=cast("Literal['created_at', 'reward']", sort_by),
        order=cast("Literal['asc', 'desc']", direction),
        limit=min(_PAGE, wanted.limit + 1) if _is_told_by_store(wanted) else _PAGE,
    )


def _is_told_by_store(wanted: Wanted) -> bool:
    return wanted.cause is None and wanted.min_reward is None and wanted.max_reward is None


async def matching_rollouts(
    store: LightningStore, wanted: Wanted, *, on_progress: Callable[[str], None]
) -> Matches:
    """Return the rollouts that are wanted, read page by page; ``on_progress`` hears how many were read.

    Raises:
        ConfigError: an unknown word or run.
    """
    query = query_from(wanted)
    found: list[Rollout] = []
    causes: Counter[str] = Counter()
    read, has_more = 0, False
    async for rollout in iter_rollouts(store, query):
        read += 1
        if read % _TOLD_EVERY == 0:
            on_progress(f"reading rollouts: {read:,} read, {len(found)} found")
        if wanted.cause is not None:
            causes[cause_of(rollout)] += 1
        if not _matches(rollout, wanted):
            continue
        if len(found) == wanted.limit:
            has_more = True
            break
        found.append(rollout)
    if not read and wanted.run_id is not None:
        await _require_run(store, wanted.run_id)
    total = None
    if wanted.is_all:
        total = sum((await store.statistics(run_id=wanted.run_id))["rollouts"].values())
    return Matches(rollouts=found, has_more=has_more, total=total, causes=causes)


def _matches(rollout: Rollout, wanted: Wanted) -> bool:
    if wanted.cause is not None and cause_of(rollout).lower() != wanted.cause.lower():
        return False
    low, high = wanted.min_reward, wanted.max_reward
    if low is None and high is None:
        return True
    reward = rollout.reward
    return reward is not None and (low is None or reward >= low) and (high is None or reward <= high)


async def _require_run(store: LightningStore, run_id: str) -> None:
    known = [run.run_id async for run in iter_runs(store)]
    if run_id in known:
        return
    like = close_matches(run_id, known)
    hint = f"; did you mean {' or '.join(like)}?" if like else ""
    raise ConfigError(
        f"--run {run_id}: there is no such run in {store.location}{hint} (agl ls runs lists what is there)"
    )


def rollout_lines(matches: Matches, wanted: Wanted, *, place: str, now: float, width: int) -> list[str]:
    """Return the rollouts as a table, and a last line that says how many of how many they are.

    Args:
        matches: what was found.
        wanted: what was asked for.
        place: where the records are.
        now: the time that ages count from.
        width: columns.
    """
    if not matches.rollouts:
        hint = ", ".join(f"{cause} {count}" for cause, count in matches.causes.most_common())
        further = f"; rollouts failed by {hint}" if hint else ""
        return wrapped(f"No rollouts{'' if wanted.is_all else ' match'} in {place}{further}", width=width)
    rows = [_row(rollout, now) for rollout in matches.rollouts]
    return [
        *table(COLUMNS, rows, width=width),
        "",
        *wrapped(f"{_how_many(matches, wanted)} in {place}", width=width),
    ]


def _how_many(matches: Matches, wanted: Wanted) -> str:
    shown = len(matches.rollouts)
    order = {"reward": "highest reward first", "lowest": "lowest reward first"}.get(
        wanted.order, f"{wanted.order} first"
    )
    if not matches.has_more:
        return f"{counted(shown, 'rollout')}, {order},"
    if matches.total is not None:
        return f"{shown} of {counted(matches.total, 'rollout')}, {order} (--limit shows more),"
    return f"The first {shown} that match, {order} (--limit shows more),"


def _row(rollout: Rollout, now: float) -> list[object]:
    begun, ended = rollout.started_at, rollout.finished_at
    if ended is None and rollout.status == "running":
        ended = now
    return [
        rollout.rollout_id,
        end_of(rollout),
        number(rollout.reward),
        rollout.mode,
        rollout.num_attempts,
        age(now - rollout.created_at),
        None if begun is None or ended is None else duration(ended - begun),
        task_words(rollout.task),
    ]


def task_words(task: Json) -> str:
    """Return a task on one line, of an object only the values: what tells tasks apart in a narrow column."""
    if not isinstance(task, dict):
        return plain(task)
    return ", ".join(plain(value) for value in cast("dict[str, Json]", task).values())


def end_of(rollout: Rollout) -> str:
    """Return the rollout's status; its cause where it failed, ``no reward`` where it succeeded without one."""
    if rollout.status == "failed":
        return cause_of(rollout)
    if rollout.status == "succeeded" and rollout.reward is None:
        return "no reward"
    return rollout.status
