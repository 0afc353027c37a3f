"""A rollout as agl show shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from listed_records import Clock, listed_store, made_call, made_span
from snapshots import WIDTHS, require_snapshot

from agl.cli.show.rollout import (
    RolloutRecord,
    rewards_of,
    rollout_as_json,
    rollout_lines,
    rollout_record,
    span_counts,
)
from agl.cli.text import columns_of
from agl.store.sqlite import SqliteStore
from agl.types import ErrorInfo, RolloutConfig, RolloutRequest, Span
from agl.types import attributes as key

ID = "2026-09-21_12-00-00-ppo_sql-val-0"
TRACEBACK = """Traceback (most recent call last):
  File "/home/me/agent.py", line 7, in agent
    return float(answer)
ValueError: could not convert string to float: 'four'
"""


def spans(attempt_id: str) -> Sequence[Span]:
    of = {"rollout_id": ID, "attempt_id": attempt_id}
    asked = [
        {"role": "system", "content": "You are a calculator. Answer with a number and nothing else, please."},
        {"role": "user", "content": "What is 2 + 2? \x1b[2J"},
    ]
    called = {"id": "c1", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
    answer = {"role": "assistant", "content": None, "tool_calls": [called]}
    then = [*asked, answer, {"role": "tool", "tool_call_id": "c1", "content": "4"}]
    reward = made_span(4, "agl.reward", at=1.5, **of)
    output = made_span(5, "agl.output", at=2, **of)
    return [
        made_call(1, asked, answer, at=0.1, seconds=0.5, **of),
        made_call(2, then, {"role": "assistant", "content": "four"}, at=0.8, seconds=0.25, **of),
        made_call(3, then, None, at=1.2, seconds=0.1, error="upstream 502: out of memory", **of),
        reward.model_copy(
            update={"attributes": {key.REWARD_VALUE: 0.5, f"{key.REWARD_DIMENSION_PREFIX}format": 1.0}}
        ),
        output.model_copy(
            update={
                "attributes": {
                    key.OUTPUT_STREAM: "stdout",
                    key.OUTPUT_TEXT: "".join(f"step {number}\n" for number in range(8)),
                    key.OUTPUT_BYTES: 56,
                }
            }
        ),
    ]


async def failed_rollout(store: SqliteStore, clock: Clock) -> RolloutRecord:
    """Two attempts: the first one timed out, the second one failed with a traceback."""
    await store.enqueue_rollout(
        RolloutRequest(
            task={"question": "What is 2 + 2?", "answer": 4},
            rollout_id=ID,
            run_id="2026-09-21_12-00-00-ppo_sql",
            mode="val",
            group_id="g-0",
            config=RolloutConfig(max_attempts=2),
            metadata={"seed": 7},
        )
    )
    for number, error in enumerate(
        (
            ErrorInfo(cause="TimeoutError", message="no answer in 60 s"),
            ErrorInfo(
                cause="ValueError",
                message="could not convert string to float: 'four'",
                traceback=TRACEBACK,
            ),
        )
    ):
        clock.now += 1.5
        held = await store.dequeue_rollout(worker_id=f"vm-18913-0765{number}")
        assert held is not None
        if number:
            await store.add_many_spans(spans(held.attempt.attempt_id))
        clock.now += 2.25
        await store.update_attempt(ID, held.attempt.attempt_id, status="failed", error=error)
    return await rollout_record(store, await store.get_rollout_by_id(ID), None)


@pytest.mark.parametrize("width", WIDTHS)
async def test_a_rollout_is_shown_whole(width: int) -> None:
    store, clock = listed_store()
    async with store:
        record = await failed_rollout(store, clock)
    lines = rollout_lines(record, place="--run-dir runs/one", width=width, full=False)
    assert all(columns_of(line) <= width for line in lines if not line.startswith("agl "))
    require_snapshot(f"show_rollout_{width}", lines)


async def test_another_attempt_is_shown_with_its_own_error_and_spans() -> None:
    store, clock = listed_store()
    async with store:
        await failed_rollout(store, clock)
        record = await rollout_record(store, await store.get_rollout_by_id(ID), "1")
    lines = rollout_lines(record, place="", width=80, full=False)
    assert "Error       TimeoutError: no answer in 60 s" in lines
    assert not any(line.startswith("Transcript") for line in lines)


async def test_all_is_shown_where_all_is_asked_for() -> None:
    store, clock = listed_store()
    async with store:
        record = await failed_rollout(store, clock)
    short, full = (rollout_lines(record, place="", width=80, full=full) for full in (False, True))
    assert "    step 0" in full
    assert "    step 0" not in short
    assert "  stdout (56 bytes, the last 5 of 8 lines)" in short


async def test_one_that_waits_has_neither_attempts_nor_a_reward() -> None:
    store, _ = listed_store()
    async with store:
        rollout = await store.enqueue_rollout(RolloutRequest(task="x", rollout_id="r"))
        record = await rollout_record(store, rollout, None)
    lines = rollout_lines(record, place="", width=80, full=False)
    assert lines[:4] == [
        "Rollout     r",
        "Status      pending; 0 attempts of at most 1",
        "Reward      -",
        "Task        x",
    ]
    assert lines[-3:] == [
        "agl trace r  # its spans",
        "agl logs r  # all that it wrote",
        "agl replay r  # the same task once more",
    ]


def test_a_reward_says_whose_it_is() -> None:
    of = {"rollout_id": "r", "attempt_id": "a"}
    given = [
        made_span(1, key.REWARD_SPAN, **of),
        made_span(2, key.REWARD_SPAN, **of),
        made_span(3, key.REGRADE_SPAN, **of),
        made_span(4, "agl.message", **of),
    ]
    attributes = [
        {key.REWARD_VALUE: 0.5},
        {key.REWARD_VALUE: 1.0, key.REWARD_RETURNED: True},
        {key.REWARD_VALUE: 0.0, key.REGRADE_GRADER: "strict", f"{key.REWARD_DIMENSION_PREFIX}style": 2.0},
        {},
    ]
    marked = [span.model_copy(update={"attributes": a}) for span, a in zip(given, attributes, strict=True)]
    assert [(reward["value"], reward["by"]) for reward in rewards_of(marked)] == [
        (0.5, "emitted on the way"),
        (1.0, "the verdict of the agent or its grader"),
        (0.0, "given later by strict"),
    ]
    assert rewards_of(marked)[2]["dimensions"] == {"style": 2.0}


def test_spans_are_counted_by_name_with_errors_and_orphans() -> None:
    of = {"rollout_id": "r", "attempt_id": "a"}
    counts = span_counts(
        [made_span(1, "a", **of), made_span(2, "b", parent=9, **of), made_span(3, "b", error="x", **of)]
    )
    assert counts == {"total": 3, "by_name": {"b": 2, "a": 1}, "errors": 1, "orphans": 1}


async def test_plain_values_have_all_of_it() -> None:
    store, clock = listed_store()
    async with store:
        record = await failed_rollout(store, clock)
    values = json.loads(json.dumps(rollout_as_json(record)))
    assert (values["kind"], values["rollout"]["rollout_id"]) == ("rollout", ID)
    assert [attempt["error"]["cause"] for attempt in values["attempts"]] == ["TimeoutError", "ValueError"]
    assert [call["error"] for call in values["calls"]] == [None, None, "upstream 502: out of memory"]
    assert (values["shown_attempt_id"], values["output"][0]["stream"]) == ("at-2", "stdout")
