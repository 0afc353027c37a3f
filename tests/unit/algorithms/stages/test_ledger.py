"""A stage's rollouts, calls and time are counted by what is in the store, over all processes of the run."""

from __future__ import annotations

from pathlib import Path

from prompt_searches import proxied_call

from agl.algorithms.stages.ledger import Ledger
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest


async def ended(store: LightningStore, rollout_id: str, **metadata: object) -> None:
    """A rollout with one call of 15 tokens."""
    claim = await store.start_rollout(
        RolloutRequest(task=1, rollout_id=rollout_id, run_id="run", mode="train", metadata=metadata)
    )
    attempt_id = claim.attempt.attempt_id
    await store.add_many_spans([proxied_call(rollout_id, attempt_id)])
    await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)


async def test_only_ended_rollouts_of_the_stage_count_once(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="t", run_id="run")
        ledger = Ledger(store, run_id="run", prefix="run-rl", file=tmp_path / "time.json", clock=lambda: 0.0)
        await ended(store, "run-rl-1")
        await ended(store, "run-rl2-1")
        await ended(store, "run-sft-1")
        pending = await store.start_rollout(
            RolloutRequest(task=1, rollout_id="run-rl-2", run_id="run", mode="train")
        )
        spent = await ledger.spent(with_calls=True)
        assert (spent.rollouts, spent.calls, spent.tokens) == (1, 1, 15)
        await store.update_attempt("run-rl-2", pending.attempt.attempt_id, status="succeeded")
        await ended(store, "run-rl-3", optimizer=True)
        await ended(store, "run-rl-4", abandoned=True)
        shallow = await ledger.spent(with_calls=False)
        assert (shallow.rollouts, shallow.tokens) == (2, 15)
        assert (ledger.num_counted("run-rl-"), ledger.num_counted("run-rl-2")) == (2, 1)
        deep = await ledger.spent(with_calls=True)
        assert (deep.rollouts, deep.calls, deep.tokens) == (2, 3, 45)  # questions and lost calls are paid for


async def test_the_time_of_a_killed_process_counts(tmp_path: Path) -> None:
    file, now = tmp_path / "stage" / "time.json", [100.0]
    async with InMemoryLightningStore() as store:
        first = Ledger(store, run_id="run", prefix="x", file=file, clock=lambda: now[0])
        now[0] = 107.0
        assert (await first.spent(with_calls=False)).seconds == 7
        now[0] = 500.0
        second = Ledger(store, run_id="run", prefix="x", file=file, clock=lambda: now[0])
        now[0] = 503.0
        assert second.seconds == 10
