"""The loop: sample, choose, learn, evaluate, save; and go on after a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_learner import ChatLearner
from run_contexts import context_of
from sampled_batches import ConstantCritic
from scripted_worker import Script

from agl.algorithms.dpo import DPO
from agl.algorithms.prompts.spending import Budget
from agl.algorithms.sft import SFT
from agl.algorithms.tuning.loop import minibatches_of
from agl.errors import ConfigError, RunStoppedError
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import AttemptedRollout, LikelihoodLoss, PreferenceLoss, ProxyLLM, TrainingSample

SMALL: dict[str, Any] = {
    "rounds": 2,
    "group_size": 4,
    "tasks_per_round": 3,
    "epochs": 2,
    "minibatch_size": 2,
    "evaluate_every": 0,
    "save_every": 2,
    "report_every": 1,
}


def by_seed(claim: AttemptedRollout) -> Script:
    """Rewards that differ within a group and are the same in every run; every answer is another one."""
    seed = int(claim.rollout.metadata["seed"])  # type: ignore[call-overload]
    return Script(reward=float(seed % 2), calls=[([1, 2], [3, seed % 97])])


def timeless(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not name.startswith("time/")}


def learned(updates: list[tuple[Any, Any]]) -> list[list[tuple[str, tuple[int, ...]]]]:
    return [[(one.rollout_id, tuple(one.token_ids)) for one in samples] for samples, _ in updates]


async def test_rounds_sample_from_the_newest_policy_and_learn_what_went_well(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, by_seed) as (context, notebook, learner, claimed),
    ):
        result = await SFT(**SMALL).run(context)
        rewards = {c.rollout.rollout_id: int(c.rollout.metadata["seed"]) % 2 for c in claimed}
        versions = {}
        for claim in claimed:
            assert claim.rollout.resources_id is not None
            llm = (await store.get_resources_by_id(claim.rollout.resources_id)).resources["llm"]
            assert isinstance(llm, ProxyLLM)
            versions[claim.rollout.rollout_id] = llm.policy_version
    names = [[name for name, _ in update] for update in learned(learner.updates)]
    assert all(rewards[name] == 1 for update in names for name in update)
    good = [sorted(name for name, reward in rewards.items() if reward and f"-r{n}-" in name) for n in (1, 2)]
    assert good[0]
    assert good[1]
    first_round = -(-len(good[0]) // 2) * 2  # two passes of minibatches of two
    assert sorted({name for update in names[:first_round] for name in update}) == good[0]
    assert sorted({name for update in names[first_round:] for name in update}) == sorted([*good[0], *good[1]])
    assert versions["run-r1-g0-0"] == 0
    assert versions["run-r2-g0-0"] == first_round
    assert result.counts.enqueued == 24
    assert (
        result.iterations == len(learner.updates) == learner.policy_version == context.policy.policy_version
    )
    assert sorted(notebook.values) == list(range(result.iterations + 1))
    assert notebook.values[1]["round/examples"] == len(good[0])
    assert result.policy_dir is not None
    assert [one.name for one in result.after] == ["val/reward", "val/reward_greedy"]
    assert notebook.values[first_round]["val/reward"] is not None


async def test_progress_rises_from_0_over_the_rounds_and_the_loss_is_the_algorithms(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, by_seed) as (context, _, learner, _),
    ):
        await SFT(**SMALL, aggregation="rollout_mean").run(context)
    losses = [loss for _, loss in learner.updates]
    assert all(isinstance(loss, LikelihoodLoss) and loss.aggregation == "rollout_mean" for loss in losses)
    progress = [loss.progress for loss in losses]
    assert progress[0] == 0.0
    assert progress == sorted(progress)
    assert progress[-1] < 1.0


@pytest.mark.parametrize("algorithm", [SFT, DPO])
@pytest.mark.parametrize("stopped_behind", [1, 5])
async def test_a_run_stopped_behind_any_step_resumes_to_the_same_updates_and_pays_no_rollout_twice(
    tmp_path: Path, algorithm: type[SFT | DPO], stopped_behind: int
) -> None:
    settings = {**SMALL, "save_every": 1, "minibatch_size": 1}
    settings["epochs"] = 1 if algorithm is SFT else 2
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path / "whole", by_seed) as (context, reported, learner, claimed),
    ):
        whole = await algorithm(**settings).run(context)
        expected = learned(learner.updates)
        asked = sorted(claim.rollout.rollout_id for claim in claimed)
    file = str(tmp_path / "store.sqlite")
    async with (
        SqliteLightningStore(file) as store,
        context_of(store, tmp_path / "run", by_seed) as (context, _, learner, before),
    ):
        update = learner.update

        async def dying(samples: Any, loss: Any) -> Any:
            if len(learner.updates) == stopped_behind:
                raise RunStoppedError("killed")
            return await update(samples, loss)

        learner.update = dying  # type: ignore[method-assign]
        with pytest.raises(RunStoppedError, match="killed"):
            await algorithm(**settings).run(context)
        done = learned(learner.updates)
    async with (
        SqliteLightningStore(file) as store,
        context_of(store, tmp_path / "run", by_seed, resume=True) as (context, notebook, learner, after),
    ):
        result = await algorithm(**settings).run(context)
        assert [*done, *learned(learner.updates)] == expected
        assert learner.policy_version == len(expected)
    assert notebook.rewound == [stopped_behind]
    for step, values in notebook.values.items():
        assert timeless(values) == timeless(reported.values[step]), step
    assert sorted(claim.rollout.rollout_id for claim in [*before, *after]) == asked
    assert result.counts == whole.counts
    assert result.iterations == whole.iterations


async def test_a_run_without_a_checkpoint_starts_over_on_the_rollouts_it_has(tmp_path: Path) -> None:
    file = str(tmp_path / "store.sqlite")
    async with (
        SqliteLightningStore(file) as store,
        context_of(store, tmp_path, by_seed) as (context, _, learner, _),
    ):
        learner.update = _fails  # type: ignore[method-assign]
        with pytest.raises(RunStoppedError):
            await SFT(**SMALL).run(context)
    async with (
        SqliteLightningStore(file) as store,
        context_of(store, tmp_path, by_seed, resume=True) as (context, notebook, _, claimed),
    ):
        await SFT(**SMALL).run(context)
    assert notebook.rewound == [-1]
    assert not any("-r1-" in claim.rollout.rollout_id for claim in claimed)


async def _fails(samples: Any, loss: Any) -> Any:
    raise RunStoppedError("killed")


async def test_held_out_rollouts_are_run_every_so_many_steps(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, by_seed) as (context, notebook, _, _),
    ):
        result = await SFT(**{**SMALL, "rounds": 1, "evaluate_every": 2, "report_every": 100}).run(context)
    evaluated = [step for step, values in notebook.values.items() if "val/reward" in values]
    last = result.iterations
    assert evaluated == sorted({0, *range(2, last + 1, 2), last})


async def test_a_round_whose_rollouts_fail_stops_the_run_and_runs_them_again_when_resumed(
    tmp_path: Path,
) -> None:
    def failing(claim: AttemptedRollout) -> Script:
        return Script(error="Down") if "-r1-" in claim.rollout.rollout_id else by_seed(claim)

    file = str(tmp_path / "store.sqlite")
    async with SqliteLightningStore(file) as store, context_of(store, tmp_path, failing) as (context, *_):
        with pytest.raises(RunStoppedError, match="Down"):
            await SFT(**SMALL).run(context)
    async with (
        SqliteLightningStore(file) as store,
        context_of(store, tmp_path, by_seed, resume=True) as (context, *_),
    ):
        result = await SFT(**SMALL).run(context)
    assert result.counts.succeeded == 24


async def test_without_a_learner_or_an_engine_that_takes_weights_it_is_refused(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store, context_of(store, tmp_path, by_seed) as (context, *_):
        with pytest.raises(ConfigError, match="SFT moves weights"):
            await SFT().run(replace(context, learner=None))
        with pytest.raises(ConfigError, match="DPO moves weights"):
            DPO().check(context.learner, trainable=False)


def test_every_pass_has_an_order_of_its_own_and_even_minibatches() -> None:
    units = [[TrainingSample(rollout_id=str(n), token_ids=[1], loss_mask=[1])] for n in range(10)]
    steps = minibatches_of(units, 4, 2, seed="s")
    assert [len(step) for step in steps] == [3, 3, 4, 3, 3, 4]
    passes = [[one.rollout_id for step in steps[at : at + 3] for one in step] for at in (0, 3)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(str(n) for n in range(10))
    assert passes[0] != passes[1]
    again = minibatches_of(units, 4, 2, seed="s")
    assert [[one.rollout_id for one in step] for step in again] == [
        [one.rollout_id for one in step] for step in steps
    ]


async def test_dpo_compares_within_the_newest_round(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, by_seed) as (context, notebook, learner, _),
    ):
        await DPO(**{**SMALL, "epochs": 1, "minibatch_size": 8}).run(context)
    (first, loss), (second, _) = learner.updates
    assert isinstance(loss, PreferenceLoss)
    for samples, number in ((first, 1), (second, 2)):
        assert all(f"-r{number}-" in one.rollout_id for one in samples)
        sides = {(one.pair_id, one.preferred) for one in samples}
        assert len(sides) == len(samples) == 2 * notebook.values[number]["round/pairs"]


@pytest.mark.parametrize("algorithm", [SFT, DPO])
async def test_a_budget_ends_before_a_round_and_a_larger_one_goes_on_as_if_there_had_been_none(
    tmp_path: Path, algorithm: type[SFT | DPO]
) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path / "whole", by_seed) as (context, _, learner, _),
    ):
        await algorithm(**SMALL).run(context)
        expected = learned(learner.updates)
    async with InMemoryLightningStore() as store:
        async with context_of(store, tmp_path / "ended", by_seed) as (context, notebook, first, _):
            ended = await algorithm(**SMALL, budget=Budget(max_rollouts=20)).run(
                context
            )  # 4 first, 12 a round
        assert ended.counts.enqueued == 12
        assert ended.further == "budget.max_rollouts=40"
        assert any(
            "the next 12 rollouts would pass budget.max_rollouts=20" in note for note in notebook.notes
        )
        assert [one.name for one in ended.after] == ["val/reward", "val/reward_greedy"]
        async with context_of(store, tmp_path / "ended", by_seed, resume=True) as (
            context,
            _,
            second,
            claimed,
        ):
            whole = await algorithm(**SMALL, budget=Budget(max_rollouts=40)).run(context)
    assert learned(first.updates) + learned(second.updates) == expected
    assert whole.further == "rounds=4"
    assert not any("-r1-" in claim.rollout.rollout_id for claim in claimed)


async def test_a_budget_that_allows_no_round_leaves_the_first_policy(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, by_seed) as (context, notebook, learner, _),
    ):
        result = await SFT(**SMALL, budget=Budget(max_rollouts=10)).run(context)
    assert learner.updates == []
    assert (result.iterations, result.further) == (0, "budget.max_rollouts=20")
    assert result.after[0].reward == result.before[0].reward
    assert notebook.notes[-1].startswith("ends behind step 0: the next 12 rollouts would pass")


async def test_data_of_which_nothing_can_be_used_stop_the_run_before_it_begins_and_say_why(
    tmp_path: Path,
) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, by_seed) as (context, _, _, claimed),
    ):
        with pytest.raises(RunStoppedError, match=r"nothing of what was given can be learned.*: 1 no_answer"):
            await SFT(files=(str(chats),)).run(replace(context, learner=ChatLearner()))
    assert claimed == []


def test_a_place_without_a_store_is_refused_by_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^algorithm\.stores: there is no store at"):
        SFT(stores=(str(tmp_path),)).check(ConstantCritic(), trainable=True)
