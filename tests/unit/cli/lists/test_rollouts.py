"""Rollouts as a list."""

from __future__ import annotations

from typing import Any

import pytest
from listed_records import NOON, listed_store
from snapshots import WIDTHS, require_snapshot

from agl.cli.lists.rollouts import Wanted, end_of, matching_rollouts, query_from, rollout_lines, task_words
from agl.cli.text import columns_of
from agl.errors import ConfigError
from agl.store.sqlite import SqliteStore
from agl.types import ErrorInfo, Rollout, RolloutConfig, RolloutRequest

RUN = "2026-09-21_12-00-00-ppo_sql"


async def fill(store: SqliteStore, clock: Any) -> None:
    """Six rollouts of two runs, one a minute: rewards 0.25, 1, none, two failures, and one that waits."""
    await store.add_run(name="ppo_sql", run_id=RUN, command="train")
    ends: list[tuple[str, float | None, str | None]] = [
        ("succeeded", 0.25, None),
        ("succeeded", 1.0, None),
        ("succeeded", None, None),
        ("failed", None, "TimeoutError"),
        ("failed", None, "ValueError"),
    ]
    for number, (status, reward, cause) in enumerate(ends):
        clock.now = NOON + 60 * number
        request = RolloutRequest(
            task={"question": f"What is {number} + {number}? \x1b[31mTake your time, and answer in words."},
            rollout_id=f"{RUN}-val-{number}",
            run_id=RUN if number else "other",
            mode="val" if number % 2 else "train",
            config=RolloutConfig(),
        )
        held = await store.start_rollout(request, worker_id=f"worker-{number % 2}")
        clock.now += 2.5
        error = None if cause is None else ErrorInfo(cause=cause, message="it did not work")
        await store.update_attempt(
            held.rollout.rollout_id,
            held.attempt.attempt_id,
            status=status,
            reward=reward,
            error=error,  # type: ignore[arg-type]
        )
    clock.now = NOON + 300
    await store.enqueue_rollout(RolloutRequest(task="plain text", rollout_id=f"{RUN}-val-5", run_id=RUN))


async def numbers(store: SqliteStore, **wanted: Any) -> list[int]:
    matches = await matching_rollouts(store, Wanted(**wanted), on_progress=lambda _: None)
    return [int(rollout.rollout_id.rpartition("-")[2]) for rollout in matches.rollouts]


async def test_filters_and_orders_choose_rollouts() -> None:
    store, clock = listed_store()
    async with store:
        await fill(store, clock)
        assert await numbers(store) == [5, 4, 3, 2, 1, 0]
        assert await numbers(store, order="oldest", limit=2) == [0, 1]
        assert (await numbers(store, order="reward"))[:2] == [1, 0]
        assert (await numbers(store, order="lowest"))[:2] == [0, 1]
        assert await numbers(store, status=("failed", "pending")) == [5, 4, 3]
        assert await numbers(store, mode="val") == [3, 1]
        assert await numbers(store, worker_id="worker-1") == [3, 1]
        assert await numbers(store, min_reward=0.25, max_reward=0.5) == [0]
        assert await numbers(store, max_reward=1.0) == [1, 0]
        assert await numbers(store, cause="timeouterror") == [3]
        assert await numbers(store, run_id="other") == [0]
        assert await numbers(store, run_id=RUN, limit=1, cause="ValueError") == [4]


async def test_a_run_that_nobody_knows_is_an_error_and_one_without_rollouts_is_none() -> None:
    store, clock = listed_store()
    async with store:
        await fill(store, clock)
        await store.add_run(name="empty", run_id="empty")
        assert await numbers(store, run_id="empty") == []
        with pytest.raises(ConfigError, match=rf"--run {RUN}x: .* in memory; did you mean {RUN}\?"):
            await numbers(store, run_id=f"{RUN}x")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"status": ("done",)}, r"--status 'done' is none of pending, .*, cancelled"),
        ({"mode": "eval"}, r"--mode 'eval' is none of train, val, test; did you mean val\?"),
        ({"order": "best"}, "--order 'best' is none of newest, oldest, reward, lowest"),
        ({"cause": "X", "status": ("succeeded",)}, "--failed X is about failed rollouts"),
    ],
)
def test_unknown_words_are_errors(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        query_from(Wanted(**wanted))


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_table_of_rollouts(width: int) -> None:
    store, clock = listed_store()
    async with store:
        await fill(store, clock)
        everything = Wanted()
        matches = await matching_rollouts(store, everything, on_progress=lambda _: None)
        lines = rollout_lines(matches, everything, place="memory", now=NOON + 3600, width=width)
        first = Wanted(limit=2, run_id=RUN)
        matches = await matching_rollouts(store, first, on_progress=lambda _: None)
        lines += ["", *rollout_lines(matches, first, place="memory", now=NOON + 3600, width=width)]
    assert max(columns_of(line) for line in lines) <= width
    require_snapshot(f"ls_rollouts_{width}", lines)


async def test_where_none_match_the_causes_that_there_are_are_named() -> None:
    store, clock = listed_store()
    async with store:
        wanted = Wanted(cause="KeyError")
        empty = await matching_rollouts(store, Wanted(), on_progress=lambda _: None)
        assert rollout_lines(empty, Wanted(), place="memory", now=0, width=80) == ["No rollouts in memory"]
        await fill(store, clock)
        matches = await matching_rollouts(store, wanted, on_progress=lambda _: None)
        assert rollout_lines(matches, wanted, place="memory", now=0, width=80) == [
            "No rollouts match in memory; rollouts failed by ValueError 1, TimeoutError 1"
        ]


def test_of_a_task_that_is_an_object_the_values_are_shown() -> None:
    assert [task_words(task) for task in ({"a": "x", "b": [1]}, "text", 3, {})] == ["x, [1]", "text", "3", ""]


def test_an_end_says_the_cause_and_a_missing_reward() -> None:
    rollout = Rollout(rollout_id="r", task=1, created_at=0.0)
    ended = rollout.model_copy(update={"status": "succeeded"})
    failed = rollout.model_copy(update={"status": "failed", "error": ErrorInfo(cause="KeyError")})
    assert [end_of(one) for one in (rollout, ended, failed)] == ["pending", "no reward", "KeyError"]
    assert end_of(ended.model_copy(update={"reward": 0.0})) == "succeeded"
