"""What exact runs must have left in the store and in the agent's journal, whatever happened to their processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from agl.evaluation.rollouts import ABANDONED
from agl.store.base import LightningStore
from agl.store.sqlite import SqliteLightningStore
from agl.types import Attempt, AttemptQuery, Rollout, RolloutQuery, Worker, WorkerQuery

TERMINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the journal."""

    word: str
    attempt_id: str
    pid: int
    time: float


@dataclass(kw_only=True)
class Records:
    """All that a store holds of runs, and the journal."""

    rollouts: list[Rollout]
    attempts: dict[str, list[Attempt]]
    """By rollout, in their order."""
    workers: dict[str, Worker]
    statistics: Mapping[str, Any]
    journal: list[Line] = field(default_factory=list)


async def records_of(file: Path, journal: Path) -> Records:
    """Read a store that nobody serves any more, and the journal."""
    async with SqliteLightningStore(str(file)) as store:
        attempts: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in await _all(store, "query_attempts", AttemptQuery):
            attempts[attempt.rollout_id].append(attempt)
        for of_rollout in attempts.values():
            of_rollout.sort(key=lambda attempt: attempt.sequence_id)
        return Records(
            rollouts=await _all(store, "query_rollouts", RolloutQuery),
            attempts=dict(attempts),
            workers={worker.worker_id: worker for worker in await _all(store, "query_workers", WorkerQuery)},
            statistics=await store.statistics(),
            journal=journal_lines(journal),
        )


async def _all(store: LightningStore, method: str, query: type) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await getattr(store, method)(query(limit=500, cursor=cursor))
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def journal_lines(journal: Path) -> list[Line]:
    """Read the agent's journal."""
    lines = [line.split() for line in journal.read_text().splitlines()]
    return [
        Line(word=word, attempt_id=attempt_id, pid=int(pid), time=float(moment))
        for word, attempt_id, pid, moment in lines
    ]


def logical_id(rollout: Rollout) -> str:
    """The place of a rollout in any run: without the run's own id, and whether it is asked for again."""
    assert rollout.run_id is not None
    name = rollout.rollout_id.removeprefix(rollout.run_id)
    while name.endswith("-again"):
        name = name.removesuffix("-again")
    return name


def results(records: Records, run_id: str) -> dict[str, float | None]:
    """The reward of each place of a run, after a look at the rollouts that were asked for there.

    Those that a dead trainer had left were set aside; the last one is the result, and it is terminal.
    """
    chains: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in records.rollouts:
        assert rollout.status in TERMINAL, rollout
        if rollout.run_id == run_id:
            chains[logical_id(rollout)].append(rollout)
    found: dict[str, float | None] = {}
    for place, chain in chains.items():
        *set_aside, last = sorted(chain, key=lambda rollout: len(rollout.rollout_id))
        assert all(ABANDONED in rollout.metadata for rollout in set_aside), chain
        assert last.status == "succeeded", last
        found[place] = last.reward
    return found


def check_counts(records: Records) -> None:
    """Enqueued is succeeded, failed and cancelled; the store says the same as its rollouts."""
    counted = Counter(rollout.status for rollout in records.rollouts)
    assert counted.keys() <= set(TERMINAL), counted
    said = records.statistics["rollouts"]
    assert {status: number for status, number in said.items() if number} == counted
    assert sum(counted.values()) == len({rollout.rollout_id for rollout in records.rollouts})


def check_leases(records: Records) -> None:
    """No attempt was executed twice, or by another process than the one that it was leased to."""
    known = {attempt.attempt_id: attempt for each in records.attempts.values() for attempt in each}
    begins = Counter(line.attempt_id for line in records.journal if line.word == "begin")
    assert set(begins.values()) == {1}, [one for one, number in begins.items() if number > 1]
    for line in records.journal:
        worker_id = known[line.attempt_id].worker_id
        assert worker_id is not None
        assert records.workers[worker_id].pid == line.pid, (line, records.workers[worker_id])
    for attempts in records.attempts.values():
        for number, attempt in enumerate(attempts, start=1):
            assert attempt.sequence_id == number
            assert attempt.finished_at is not None, attempt
        for earlier, later in pairwise(attempts):
            assert earlier.finished_at is not None
            assert earlier.finished_at <= later.started_at, (earlier, later)


def check_results_are_of_the_last_attempt(records: Records) -> None:
    """A rollout succeeded by one attempt, its last, and has that one's rewards: no late result changed it."""
    for rollout in records.rollouts:
        good = [one for one in records.attempts.get(rollout.rollout_id, []) if one.status == "succeeded"]
        assert len(good) == (rollout.status == "succeeded"), rollout
        if good:
            assert good[0].sequence_id == rollout.num_attempts
            assert rollout.reward_dimensions["attempt"] == good[0].sequence_id


def refused(records: Records) -> int:
    """How many attempts runners had in hand that were no longer theirs: their ends changed nothing."""
    return sum(int(str(worker.stats.get("superseded", 0))) for worker in records.workers.values())


def late_results(records: Records) -> list[Line]:
    """The ends of attempts that had a result, and were no longer their runner's."""
    good = {one.attempt_id for each in records.attempts.values() for one in each if one.status == "succeeded"}
    return [line for line in records.journal if line.word == "end" and line.attempt_id not in good]


def run_ids(rollouts: Sequence[Rollout]) -> list[str]:
    """The runs that rollouts belong to."""
    return sorted({rollout.run_id for rollout in rollouts if rollout.run_id is not None})


def summary(records: Records) -> str:
    """How much there is to look at: what became of rollouts and attempts, and what the journal says."""
    attempts = Counter(one.status for each in records.attempts.values() for one in each)
    late = len(late_results(records))
    return (
        f"rollouts {dict(Counter(rollout.status for rollout in records.rollouts))}, attempts {dict(attempts)},"
        f" journal {dict(Counter(line.word for line in records.journal))}, of them {late} late results,"
        f" {refused(records)} no longer their runner's"
    )
