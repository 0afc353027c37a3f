"""Runs as a list."""

from __future__ import annotations

import pytest
from listed_records import NOON, listed_store
from snapshots import WIDTHS, require_snapshot

from agl.cli.lists.runs import run_lines, runs_here, runs_of_store
from agl.cli.run_state import RunState


async def test_the_runs_of_a_store_are_listed_newest_first_with_where_they_stand() -> None:
    store, clock = listed_store()
    async with store:
        for number in range(3):
            clock.now = NOON + number
            settings = {"algorithm": {"iterations": 60}}
            await store.add_run(name="ppo_sql", run_id=f"run-{number}", command="train", settings=settings)
        await store.add_metrics("run-2", 4, {"train/reward": 0.5, "val/reward": 0.25})
        heard: list[str] = []
        states = await runs_of_store(store, 2, on_progress=heard.append)
    assert [state.run_id for state in states] == ["run-2", "run-1"]
    assert (states[0].stands_at, states[0].reward, states[0].held_out_reward) == ("iteration 4/60", 0.5, 0.25)
    assert states[1].stands_at == "0/0 rollouts"
    assert heard == ["reading run-2 1/2", "reading run-1 2/2"]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_of_runs(width: int) -> None:
    begun = {"name": "ppo_sql", "command": "train", "created_at": NOON}
    states = [
        RunState(
            run_id="2026-09-21_12-10-00-ppo_sql",
            status="running",
            step=12,
            total_steps=60,
            reward=0.4375,
            held_out_reward=0.5,
            **begun,
        ),
        RunState(
            run_id="2026-09-21_12-00-00-ppo_sql",
            status="stopped",
            finished_rollouts=120,
            rollouts=200,
            **begun,
        ),
        RunState(
            run_id="broken", status="unreadable", problem="runs/broken/store.sqlite is no store", **begun
        ),
        RunState(
            run_id="measured",
            name="ppo_sql",
            command="eval",
            status="succeeded",
            created_at=NOON - 86_400 * 3,
            finished_at=NOON - 86_400 * 3 + 754,
            finished_rollouts=200,
            rollouts=200,
            held_out_reward=0.64,
        ),
    ]
    lines = run_lines(states, now=NOON + 600, width=width)
    assert max(map(len, lines)) <= width
    require_snapshot(f"ls_runs_{width}", lines)


async def test_the_runs_of_a_folder_without_runs_are_none(in_folder: object) -> None:
    assert await runs_here(10, on_progress=lambda _: None) == []
