"""A loop that moves weights ends before it would pass its budget, and where the run as a whole says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prompt_searches import proxied_call
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.limits import Limits
from agl.algorithms.prompts.spending import Budget
from agl.errors import RunStoppedError
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptedRollout, RolloutRequest


def nothing(_: AttemptedRollout) -> Script:
    return Script(reward=0.0)


async def ended(store: LightningStore, rollout_id: str) -> None:
    """A rollout with one call of 15 tokens."""
    claim = await store.start_rollout(
        RolloutRequest(task=1, rollout_id=rollout_id, run_id="run", mode="train")
    )
    attempt_id = claim.attempt.attempt_id
    await store.add_many_spans([proxied_call(rollout_id, attempt_id)])
    await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)


async def test_what_comes_next_may_not_pass_the_budget_and_what_is_in_the_store_is_not_asked_for_again(
    tmp_path: Path,
) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, nothing) as (context, _, _, _),
    ):
        for number in range(3):
            await ended(store, f"run-r1-g0-{number}")
        limits = Limits(context, Budget(max_rollouts=6))
        assert await limits.reached() is None
        assert await limits.reached(6, prefix="run-r1-") is None
        assert await limits.reached(3, prefix="run-r2-") is None
        assert limits.more == ""
        words = await limits.reached(4, prefix="run-r2-")
        assert words is not None
        assert words.startswith(
            "the next 4 rollouts would pass budget.max_rollouts=6 (spent: 3 rollouts, 3 calls, 45 tokens"
        )
        assert limits.more == "budget.max_rollouts=12"


async def test_tokens_are_projected_from_the_mean(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, nothing) as (context, _, _, _),
    ):
        await ended(store, "run-r1-g0-0")
        limits = Limits(context, Budget(max_tokens=45))
        assert await limits.reached(2) is None  # 15 each
        assert "budget.max_tokens=45 is spent, or would be" in str(await limits.reached(3))


async def test_a_limit_of_cost_without_prices_is_refused(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, nothing) as (context, _, _, _),
    ):
        await ended(store, "run-r1-g0-0")
        with pytest.raises(RunStoppedError, match="max_cost=1 cannot be kept: 1 calls have no known price"):
            await Limits(context, Budget(max_cost=1.0)).reached()


async def test_without_a_budget_the_run_as_a_whole_decides(tmp_path: Path) -> None:
    async def enough() -> str | None:
        return "enough"

    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, nothing) as (context, _, _, _),
    ):
        limits = Limits(context, None)
        assert await limits.reached(10**9) is None
        limits.write()
        assert await Limits(replace(context, ends_now=enough), None).reached() == "enough"
    assert list(tmp_path.iterdir()) == []


async def test_the_time_is_kept_for_a_process_that_goes_on(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, nothing) as (context, _, _, _),
    ):
        (tmp_path / "budget.json").write_text('{"seconds": 61.0}')
        limits = Limits(context, Budget(max_minutes=1))
        assert "budget.max_minutes=1 is spent" in str(await limits.reached())
        limits.write()
    assert '"seconds": 61.' in (tmp_path / "budget.json").read_text()
