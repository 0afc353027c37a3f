"""Candidates on tasks: paired, paid for once, and a failure is neither a 0 nor a gap."""

from __future__ import annotations

from pathlib import Path

from prompt_searches import START, bench
from scripted_worker import Script

from agl.algorithms.apo import APO
from agl.algorithms.prompts.scoring import is_bad
from agl.evaluation.rollouts import set_aside
from agl.store.sqlite import InMemoryLightningStore

SETTINGS = APO(val_batch_size=4, max_attempts=1)


def by_text(text: str, task: int) -> Script:
    return Script(reward=float(task if text == START else 10 * task))


async def test_each_pair_of_candidate_and_task_is_run_once(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_text) as at,
    ):
        scorer, start = at.search.scorer, at.search.start
        other = start.changed("prompt", "Solve {task}", made_by="test")
        assert scorer.num_new([start, start, other], [1, 2]) == 4
        first, second = await scorer.score([start, other], [1, 2])
        assert (first.rewards, second.rewards) == ({1: 1.0, 2: 2.0}, {1: 10.0, 2: 20.0})
        (again,) = await scorer.score([start], [1, 2, 3])
        assert again.rewards == {1: 1.0, 2: 2.0, 3: 3.0}
    assert len(at.claimed) == 5
    assert scorer.counts.enqueued == scorer.spent.rollouts == 5
    assert scorer.worst_reward == 1.0


async def test_candidates_of_a_task_share_seed_and_group(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_text) as at,
    ):
        other = at.search.start.changed("prompt", "Solve {task}", made_by="test")
        await at.search.scorer.score([at.search.start, other], [1, 2])
        seeds = {(c.rollout.task, c.rollout.metadata["seed"]) for c in at.claimed}
        groups = {(c.rollout.task, c.rollout.group_id) for c in at.claimed}
    assert len(seeds) == len(groups) == 2


async def test_the_agent_gets_the_candidates_prompt(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_text) as at,
    ):
        other = at.search.start.changed("prompt", "Solve {task}", made_by="test")
        await at.search.scorer.score([other], [1])
        named = await store.get_resources_by_id(at.claimed[0].rollout.resources_id or "")
    assert named.resources["prompt"] == other.prompts["prompt"]


async def test_failures_and_missing_rewards_are_counted_and_have_no_number(tmp_path: Path) -> None:
    scripts = {1: Script(reward=0.5), 2: Script(error="ValueError"), 3: Script()}
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=lambda _, task: scripts[task]) as at,
    ):
        (scores,) = await at.search.scorer.score([at.search.start], [1, 2, 3])
        assert is_bad(at.search.scorer.rollout_of(at.search.start, 3))
    assert scores.rewards == {1: 0.5, 2: None, 3: None}
    assert scores.failed == {"ValueError": 1, "no reward": 1}
    assert (scores.mean, round(scores.bad_fraction, 3)) == (0.5, 0.667)
    assert str(scores) == "0.500 on 3 tasks, 2 failed"


async def test_running_again_leaves_the_scores_alone(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_text) as at,
    ):
        scorer, start = at.search.scorer, at.search.start
        await scorer.score([start], [1])
        again = await scorer.run_again(start, [1], "canary-1")
        assert again[0].rollout_id != scorer.rollout_of(start, 1).rollout_id
        assert scorer.spent.rollouts == 2


async def test_what_a_resumed_run_finds_in_the_store_is_paid_for(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        async with bench(store, tmp_path, SETTINGS, script=by_text) as at:
            scorer, start = at.search.scorer, at.search.start
            assert await scorer.num_unpaid([start], [1, 2]) == 2
            await scorer.score([start], [1, 2])
            await set_aside(store, [scorer.rollout_of(start, 2)])
        for expected in (2, 1):  # tasks 2 and 3; then 2 has been run again
            async with bench(store, tmp_path, SETTINGS, script=by_text, resume=True) as at:
                assert await at.search.scorer.num_unpaid([start], [1, 2, 3]) == expected
                await at.search.scorer.score([start], [1, 2])
