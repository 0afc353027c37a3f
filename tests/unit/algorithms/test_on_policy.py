"""The loop: sample, credit, update, publish, evaluate, save; and go on after a stop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.grpo import GRPO
from agl.algorithms.ppo import PPO
from agl.algorithms.prompts.spending import Budget
from agl.errors import ConfigError, RunStoppedError
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import AttemptedRollout, ProxyLLM

SMALL = {"iterations": 3, "tasks_per_iteration": 2, "group_size": 2, "evaluate_every": 0, "save_every": 2}


def reward_by_seed(claim: AttemptedRollout) -> Script:
    """Rewards that differ within a group and are the same in every run."""
    return Script(reward=float(claim.rollout.metadata["seed"] % 2))


async def test_every_iteration_updates_publishes_and_reports(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, reward_by_seed) as (context, notebook, learner, claimed),
    ):
        result = await PPO(**SMALL).run(context)  # type: ignore[arg-type]
        assert [len(samples) for samples, _ in learner.updates] == [4, 4, 4]
        assert context.policy.policy_version == 3
        assert sorted(notebook.values) == [0, 1, 2, 3]
        assert notebook.values[3]["total/rollouts/enqueued"] == result.counts.enqueued == 12
        assert notebook.values[3]["policy/version"] == 3
        versions = {}
        for claim in claimed:
            assert claim.rollout.resources_id is not None
            llm = (await store.get_resources_by_id(claim.rollout.resources_id)).resources["llm"]
            assert isinstance(llm, ProxyLLM)
            versions[claim.rollout.rollout_id] = (llm.policy_version, llm.sampling["temperature"])
    assert versions["run-i1-g0-0"] == (0, 1.0)
    assert versions["run-i3-g1-1"] == (2, 1.0)
    assert versions["run-e3-reward_greedy-0-0"] == (3, 0.0)
    assert [evaluation.name for evaluation in result.after] == ["val/reward", "val/reward_greedy"]
    assert result.policy_dir is not None
    assert (result.policy_dir / "config.json").is_file()


async def test_two_runs_of_one_seed_sample_the_same_tasks_with_the_same_seeds(tmp_path: Path) -> None:
    seen = []
    for name in ("first", "second"):
        async with (
            InMemoryLightningStore() as store,
            context_of(store, tmp_path / name, reward_by_seed) as (context, _, _, claimed),
        ):
            await GRPO(**SMALL).run(context)  # type: ignore[arg-type]
            seen.append({c.rollout.rollout_id: (c.rollout.task, c.rollout.metadata["seed"]) for c in claimed})
    assert seen[0] == seen[1]


async def test_a_resumed_run_continues_counters_and_samples_only_what_is_missing(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    settings = {**SMALL, "save_every": 1}
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, reward_by_seed) as (context, _, _, _),
    ):
        await PPO(**{**settings, "iterations": 2}).run(context)  # type: ignore[arg-type]
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, reward_by_seed, resume=True) as (context, notebook, learner, claimed),
    ):
        result = await PPO(**settings).run(context)  # type: ignore[arg-type]
        assert learner.policy_version == 3
    assert notebook.rewound == [2]
    assert sorted(notebook.values) == [3]
    assert result.counts.enqueued == 12
    assert {claim.rollout.rollout_id.split("-")[1] for claim in claimed} == {"i3", "e3"}
    assert any("resumed behind iteration 2" in note for note in notebook.notes)


async def test_rollouts_of_an_unsaved_iteration_are_learned_from_again_not_sampled_again(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "store.sqlite")
    settings = {**SMALL, "save_every": 2, "iterations": 3}

    class StoppedError(Exception):
        pass

    def until_third(claim: AttemptedRollout) -> Script:
        return reward_by_seed(claim)

    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, until_third) as (context, _, learner, _),
    ):
        update = learner.update

        async def stops_behind_the_third(samples, loss):  # type: ignore[no-untyped-def]
            if learner.policy_version == 2:
                raise StoppedError
            return await update(samples, loss)

        learner.update = stops_behind_the_third  # type: ignore[method-assign]
        with pytest.raises(StoppedError):
            await PPO(**settings).run(context)  # type: ignore[arg-type]
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, reward_by_seed, resume=True) as (context, _, learner, claimed),
    ):
        await PPO(**settings).run(context)  # type: ignore[arg-type]
        assert [len(samples) for samples, _ in learner.updates] == [4]
    assert [claim.rollout.rollout_id for claim in claimed if "-i3-" in claim.rollout.rollout_id] == []


async def test_a_run_killed_at_its_very_end_still_reports_the_gain_when_resumed(tmp_path: Path) -> None:
    def by_version(claim: AttemptedRollout) -> Script:
        begins = claim.rollout.rollout_id.startswith("run-e0-")
        return Script(reward=0.0) if begins else reward_by_seed(claim)

    path = str(tmp_path / "store.sqlite")
    results = []
    for resume in (False, True):
        async with (
            SqliteLightningStore(path) as store,
            context_of(store, tmp_path, by_version, resume=resume) as (context, _, _, _),
        ):
            results.append(await PPO(**SMALL).run(context))  # type: ignore[arg-type]
    first, resumed = results
    ends = [[rollout.rollout_id for group in one.rollouts for rollout in group] for one in first.after]
    assert ends[0] == ["run-e3-reward-0-0", "run-e3-reward-1-0"]
    assert [
        [rollout.rollout_id for group in one.rollouts for rollout in group] for one in resumed.after
    ] == ends


async def test_an_iteration_that_a_checkpoint_counts_is_in_the_metrics(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    class DiesAtStepTwo(SqliteLightningStore):
        async def add_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
            if step == 2:
                raise KilledError
            await super().add_metrics(run_id, step, values)

    path = str(tmp_path / "store.sqlite")
    settings = {**SMALL, "save_every": 1}
    with pytest.raises(KilledError):
        async with (
            DiesAtStepTwo(path) as store,
            context_of(store, tmp_path, reward_by_seed) as (context, _, _, _),
        ):
            await PPO(**settings).run(context)  # type: ignore[arg-type]
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, reward_by_seed, resume=True) as (context, notebook, _, _),
    ):
        await PPO(**settings).run(context)  # type: ignore[arg-type]
    assert notebook.rewound == [1]
    assert sorted(notebook.values) == [2, 3]


async def test_mostly_bad_rollouts_stop_the_run(tmp_path: Path) -> None:
    def fails_after_preflight(claim: AttemptedRollout) -> Script:
        return Script(error="KeyError") if "-i1-" in claim.rollout.rollout_id else Script(reward=1.0)

    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, fails_after_preflight) as (context, _, learner, _),
    ):
        with pytest.raises(RunStoppedError, match=r"4 of 4 rollouts .*KeyError"):
            await PPO(**SMALL).run(context)  # type: ignore[arg-type]
        assert learner.updates == []


@pytest.mark.parametrize("where", ["-i1-", "-preflight-"])
async def test_a_run_that_a_broken_service_stopped_goes_on_when_it_works_again(
    where: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "store.sqlite")

    def without_service(claim: AttemptedRollout) -> Script:
        return Script(error="ConnectionError") if where in claim.rollout.rollout_id else reward_by_seed(claim)

    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, without_service) as (context, _, _, _),
    ):
        with pytest.raises(RunStoppedError, match="ConnectionError"):
            await PPO(**SMALL).run(context)  # type: ignore[arg-type]
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, reward_by_seed, resume=True) as (context, _, _, _),
    ):
        result = await PPO(**SMALL).run(context)  # type: ignore[arg-type]
    assert (result.counts.enqueued, result.counts.succeeded) == (12, 12)


async def test_a_run_resumed_with_other_sampling_measures_before_and_after_alike(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    for max_tokens in (16, 32):
        async with (
            SqliteLightningStore(path) as store,
            context_of(store, tmp_path, reward_by_seed, resume=max_tokens == 32) as (context, _, _, _),
        ):
            result = await PPO(**{**SMALL, "max_tokens": max_tokens}).run(context)  # type: ignore[arg-type]
            evaluated = [
                rollout
                for one in (*result.before, *result.after)
                for group in one.rollouts
                for rollout in group
            ]
            limits = set()
            for rollout in evaluated:
                assert rollout.resources_id is not None
                llm = (await store.get_resources_by_id(rollout.resources_id)).resources["llm"]
                assert isinstance(llm, ProxyLLM)
                limits.add((rollout.rollout_id.split("-")[1], llm.policy_version, llm.sampling["max_tokens"]))
    assert limits == {("e0", 0, 32), ("e3", 3, 32)}


async def test_an_iteration_whose_groups_teach_nothing_leaves_the_weights(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(reward=1.0)) as (context, notebook, learner, _),
    ):
        await GRPO(**SMALL).run(context)  # type: ignore[arg-type]
        assert learner.policy_version == 0
    assert notebook.values[3]["groups/zero_variance"] == 1.0


async def test_without_a_learner_the_settings_to_change_are_named(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, reward_by_seed) as (context, _, _, _),
    ):
        from dataclasses import replace

        with pytest.raises(ConfigError, match="learner=torch"):
            await PPO(**SMALL).run(replace(context, learner=None))  # type: ignore[arg-type]


async def test_stragglers_of_an_unsaved_iteration_stay_cut_off_when_it_is_resumed(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    settings = {**SMALL, "save_every": 2, "iterations": 3, "wait": 0.75}

    class StoppedError(Exception):
        pass

    def late(claim: AttemptedRollout) -> Script:
        script = reward_by_seed(claim)
        return Script(reward=script.reward, hangs=claim.rollout.rollout_id.endswith("-i3-g0-1"))

    learned = []
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, late) as (context, _, learner, _),
    ):
        update = learner.update

        async def stops_behind_the_third(samples, loss):  # type: ignore[no-untyped-def]
            if learner.policy_version == 2:
                learned.append(samples)
                raise StoppedError
            return await update(samples, loss)

        learner.update = stops_behind_the_third  # type: ignore[method-assign]
        with pytest.raises(StoppedError):
            await PPO(**settings).run(context)  # type: ignore[arg-type]
    async with (
        SqliteLightningStore(path) as store,
        context_of(store, tmp_path, reward_by_seed, resume=True) as (context, notebook, learner, claimed),
    ):
        result = await PPO(**settings).run(context)  # type: ignore[arg-type]
        learned += [samples for samples, _ in learner.updates]
    assert learned[0] == learned[1]
    assert [sample.rollout_id for sample in learned[0]] == ["run-i3-g0-0", "run-i3-g1-0", "run-i3-g1-1"]
    assert [claim for claim in claimed if "-i3-" in claim.rollout.rollout_id] == []
    assert (result.counts.enqueued, result.counts.cancelled, result.counts.stragglers) == (12, 1, 1)
    assert notebook.values[3]["rollouts/stragglers"] == 1
    assert notebook.values[3]["groups/incomplete"] == 1


async def test_a_budget_ends_between_iterations_and_a_larger_one_goes_on_as_if_there_had_been_none(
    tmp_path: Path,
) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path / "whole", reward_by_seed) as (context, _, learner, _),
    ):
        await GRPO(**SMALL).run(context)  # type: ignore[arg-type]
        expected = [[one.rollout_id for one in samples] for samples, _ in learner.updates]
    async with InMemoryLightningStore() as store:
        async with context_of(store, tmp_path / "ended", reward_by_seed) as (context, notebook, first, _):
            budget = Budget(max_rollouts=9)  # 4 first, 4 an iteration
            ended = await GRPO(**SMALL, budget=budget).run(context)  # type: ignore[arg-type]
        assert (ended.iterations, ended.further) == (1, "budget.max_rollouts=18")
        assert ended.checkpoint_dir is not None
        assert ended.checkpoint_dir.name == "iteration-000001"
        assert "would pass budget.max_rollouts=9" in notebook.notes[-1]
        async with context_of(store, tmp_path / "ended", reward_by_seed, resume=True) as (
            context,
            _,
            second,
            claimed,
        ):
            whole = await GRPO(**SMALL, budget=Budget(max_rollouts=18)).run(context)  # type: ignore[arg-type]
    updates = [*first.updates, *second.updates]
    assert [[one.rollout_id for one in samples] for samples, _ in updates] == expected
    assert (whole.iterations, whole.further) == (3, "")
    assert not any("-i1-" in claim.rollout.rollout_id for claim in claimed)
