"""Own algorithms run the agent: in order, under names, and not on and on where everything fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.roll_out import RollOut, digest_of
from agl.errors import RunStoppedError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PromptTemplate, ProxyLLM, RolloutConfig


async def test_rollouts_come_back_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda claim: Script(reward=float(claim.rollout.task))) as (context, *_),
    ):
        roll_out = RollOut(context, {}, config=RolloutConfig(max_attempts=2), max_bad_fraction=0.5)
        rollouts = await roll_out([3, 1, 3])
    assert [rollout.reward for rollout in rollouts] == [3, 1, 3]
    assert {rollout.config.max_attempts for rollout in rollouts} == {2}
    seeds = [rollout.metadata["seed"] for rollout in rollouts]
    assert len(set(seeds)) == 3  # the same task twice is two samples


async def test_failures_are_told_and_too_many_stop_the_run(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(error="KeyError")) as (context, _, _, claimed),
    ):
        roll_out = RollOut(context, {}, config=RolloutConfig(), max_bad_fraction=0.5)
        (one,) = await roll_out([1])
        assert (one.reward, one.error and one.error.cause) == (None, "KeyError")
        with pytest.raises(RunStoppedError, match=r"8 of 8 rollouts.*KeyError"):
            await roll_out(range(7))
        again = [await store.get_rollout_by_id(claim.rollout.rollout_id) for claim in claimed]
    assert sum("abandoned" in rollout.metadata for rollout in again) == 7  # tried again on resume


def test_where_the_proxy_is_makes_no_difference_and_what_is_served_does() -> None:
    here = ProxyLLM(base_url="http://a", model="m", api_key="k", sampling={"temperature": 0})
    there = here.model_copy(update={"base_url": "http://b", "api_key": "other"})
    warm = here.model_copy(update={"sampling": {"temperature": 1}})
    prompt = PromptTemplate(template="x")
    first = digest_of({"llm": here, "p": prompt, "n": 3}, policy_version=0)
    assert digest_of({"llm": there, "p": prompt, "n": 3}, policy_version=0) == first
    others = [
        digest_of({"llm": warm, "p": prompt, "n": 3}, policy_version=0),
        digest_of({"llm": here, "p": prompt, "n": 4}, policy_version=0),
        digest_of({"llm": here, "p": prompt, "n": 3}, policy_version=1),
    ]
    assert len({first, *others}) == 4
