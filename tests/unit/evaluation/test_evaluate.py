"""An evaluation counts failures apart and never as zero."""

from __future__ import annotations

from scripted_worker import Script, scripted_worker

from agl.evaluation.evaluate import evaluate
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptedRollout

SCRIPTS = {
    "good": Script(reward=1.0),
    "bad": Script(reward=0.0),
    "broken": Script(error="ValueError"),
    "mute": Script(),
}


def script_of(claim: AttemptedRollout) -> Script:
    return SCRIPTS[claim.rollout.task]


async def test_failed_and_mute_rollouts_are_counted_and_left_out_of_the_mean() -> None:
    async with InMemoryLightningStore() as store, scripted_worker(store, script_of):
        resources = await store.add_resources({"x": 1})
        result = await evaluate(
            store,
            list(SCRIPTS),
            name="val/reward",
            id_prefix="run-e0",
            resources_id=resources.resources_id,
            seed=0,
            repeats=2,
        )
    assert result.reward.mean == 0.5
    assert result.reward.num_tasks == 2
    assert result.reward.num_rewards == 4
    assert dict(result.counts.failed) == {"ValueError": 2}
    assert result.counts.without_reward == 2
    assert [result.reward_of_task(index) for index in range(4)] == [1.0, 0.0, None, None]
    assert {rollout.mode for group in result.rollouts for rollout in group} == {"val"}


async def test_every_rollout_has_a_seed_of_its_own() -> None:
    async with InMemoryLightningStore() as store, scripted_worker(store, script_of) as claimed:
        resources = await store.add_resources({"x": 1})
        await evaluate(
            store,
            ["good", "bad"],
            name="val/reward",
            id_prefix="p",
            resources_id=resources.resources_id,
            seed=100,
            repeats=3,
        )
    assert sorted(claim.rollout.metadata["seed"] for claim in claimed) == [100, 101, 102, 103, 104, 105]
