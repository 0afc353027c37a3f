"""Workers as a list."""

from __future__ import annotations

import pytest
from listed_records import NOON, listed_store
from snapshots import WIDTHS, require_snapshot

from agl.cli.lists.workers import worker_lines, workers_of_store
from agl.types import RolloutRequest


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_table_of_workers_has_the_living_first_and_what_they_work_on(width: int) -> None:
    store, clock = listed_store()
    async with store:
        assert worker_lines([], place="memory", now=NOON, width=80) == ["No workers in memory"]
        await store.register_worker("gone", host="gpu-1", pid=7)
        clock.now = NOON + 3600
        await store.register_worker("done", host="gpu-1", pid=8)
        await store.worker_heartbeat("done", stats={"succeeded": 4, "failed": {}, "ended": True})
        await store.register_worker("alive", host="gpu-2.example.org", pid=12345)
        for number in range(3):
            request = RolloutRequest(task=1, rollout_id=f"2026-09-21_12-00-00-ppo_sql-{number}")
            await store.start_rollout(request, worker_id="alive")
        stats = {"succeeded": 10, "failed": {"ValueError": 2, "KeyError": 1}}
        await store.worker_heartbeat("alive", attempts=["at-1", "at-2", "at-3"], stats=stats)
        states = await workers_of_store(store, 10)
        lines = worker_lines(states, place="memory", now=NOON + 3605, width=width)
        assert [len(await workers_of_store(store, most)) for most in (1, 2)] == [1, 2]
    assert [state.status for state in states] == ["busy", "ended", "offline"]
    assert [state.as_json()["rollout_ids"] for state in states] == [
        [f"2026-09-21_12-00-00-ppo_sql-{number}" for number in range(3)],
        [],
        [],
    ]
    assert max(map(len, lines)) <= width
    require_snapshot(f"ls_workers_{width}", lines)
