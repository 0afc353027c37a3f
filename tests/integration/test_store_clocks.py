"""Clock differences between machines do not matter: the store's clock decides on leases, pauses and time limits."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import pytest

from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore

HOURS = 3600.0
WORKER = """
import asyncio, json, sys, time
real, offset = time.time, float(sys.argv[2])
time.time = lambda: real() + offset
time.time_ns = lambda: int(time.time() * 1e9)
from agl.store.client import LightningStoreClient
from agl.types import AttemptQuery, RolloutConfig, RolloutRequest, Span

async def main():
    async with LightningStoreClient(sys.argv[1]) as store:
        config = RolloutConfig(
            timeout_seconds=60, unresponsive_seconds=30, max_attempts=3, retry_delay_seconds=0.2
        )
        await store.register_worker("w")
        await store.enqueue_rollout(RolloutRequest(task=1, rollout_id="ro", config=config))
        for number in (1, 2):
            held = await store.dequeue_rollout(worker_id="w", wait_seconds=30)
            lost = await store.worker_heartbeat("w", attempts=[held.attempt.attempt_id])
            assert lost == [], "the lease is alive, whatever the time is here"
            span = Span(
                trace_id=f"{number:032x}", span_id=f"{number:016x}", name="chat",
                start_time_ns=time.time_ns(), rollout_id="ro", attempt_id=held.attempt.attempt_id,
            )
            await store.add_span(span)
            end = {"status": "failed"} if number == 1 else {"status": "succeeded", "reward": 1.0}
            await store.update_attempt("ro", held.attempt.attempt_id, **end)
        rollout = await store.get_rollout_by_id("ro")
        attempts = (await store.query_attempts(AttemptQuery(rollout_id="ro"))).items
        workers = await store.get_active_workers(within_seconds=20)
        print(json.dumps({
            "here": time.time(),
            "rollout": rollout.model_dump(),
            "attempts": [one.model_dump() for one in attempts],
            "workers": [one.model_dump() for one in workers],
        }))

asyncio.run(main())
"""


@pytest.mark.parametrize("offset", [-7 * HOURS, 7 * HOURS], ids=["late", "early"])
async def test_a_worker_whose_clock_is_off_by_hours_works_like_any_other(offset: float) -> None:
    begin = time.time()
    async with InMemoryLightningStore() as store, StoreServer(store, port=0).serving() as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORKER, url, str(offset), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60.0)
    end = time.time()
    assert process.returncode == 0
    seen: dict[str, Any] = json.loads(out)
    assert abs(seen["here"] - end) > 6 * HOURS  # the worker's clock was off indeed
    rollout, attempts = seen["rollout"], seen["attempts"]
    assert (rollout["status"], rollout["reward"]) == ("succeeded", 1.0)
    assert [one["status"] for one in attempts] == ["failed", "succeeded"]
    assert [one["worker_id"] for one in seen["workers"]] == ["w"]
    times = [rollout["created_at"], rollout["started_at"]]
    for one in attempts:
        times += [one["started_at"], one["last_heartbeat_at"], one["finished_at"]]
    times.append(rollout["finished_at"])
    assert times == sorted(times)
    assert begin <= times[0] <= times[-1] <= end
    assert begin <= seen["workers"][0]["last_heartbeat_at"] <= end
    pause = attempts[1]["started_at"] - attempts[0]["finished_at"]
    assert pause >= 0.1  # retry_delay_seconds=0.2, of which jitter takes half at most
