"""What SFT learns from: files, stores, its own rounds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_learner import ChatLearner
from chat_tokens import chat_tokens
from run_contexts import context_of
from sampled_batches import ConstantCritic
from scripted_worker import Script

from agl.algorithms.sft import SFT
from agl.algorithms.tuning.examples import Example
from agl.errors import ConfigError, RunStoppedError
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import AttemptedRollout, Trajectory


def example(name: str, reward: float) -> Example:
    one = Trajectory(
        rollout_id=name,
        agent=None,
        token_ids=[1, *map(ord, name)],
        loss_mask=[0, *(1 for _ in name)],
        logprobs=[0.0] * (1 + len(name)),
        temperature=1.0,
        policy_version=0,
        call_ends=[1 + len(name)],
        call_rewards=[None],
    )
    return Example(example_id=name, group_id=name, task=name[0], reward=reward, trajectories=[one])


def chats(folder: Path) -> str:
    messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    file = folder / "chats.jsonl"
    file.write_text(json.dumps({"messages": messages}))
    return str(file)


def test_a_round_learns_from_earlier_ones_where_it_keeps_them_and_newest_first() -> None:
    given, rounds = [example("g", 1.0)], [[example("a1", 1.0), example("a2", 0.0)], [example("a3", 1.0)]]
    kept = SFT(top_k=1).lesson(given, rounds)
    assert [unit[0].rollout_id for unit in kept.units] == ["g", "a3"]
    assert kept.metrics["left_out/beyond_top_k"] == 1
    assert kept.metrics["left_out/below_reward"] == 1
    assert (kept.metrics["examples"], kept.metrics["tasks"], kept.metrics["tokens"]) == (2, 2, 3)
    newest = SFT(keep_earlier=False).lesson(given, rounds)
    assert [unit[0].rollout_id for unit in newest.units] == ["g", "a3"]
    assert "left_out/below_reward" not in newest.metrics


def test_where_nothing_is_good_enough_the_best_reward_is_named() -> None:
    with pytest.raises(RunStoppedError, match=r"min_reward=1\); the best reward of 2 was 0.5"):
        SFT().lesson([], [[example("a", 0.5), example("b", 0.0)]])


async def test_one_round_on_given_data_is_plain_fine_tuning_that_samples_nothing(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(reward=1.0)) as (context, notebook, _, claimed),
    ):
        learner = ChatLearner()
        result = await SFT(files=(chats(tmp_path),), epochs=3).run(replace(context, learner=learner))
    assert {claim.rollout.mode for claim in claimed} == {"val"}
    assert len(learner.updates) == 3
    ((sample,), _), *_ = learner.updates
    assert chat_tokens().tokenizer.decode(sample.token_ids).endswith("assistant\n2<|im_end|>")
    assert result.counts.enqueued == 0
    assert notebook.notes[0] == "given: 1 examples"
    assert result.further == "epochs=6"


async def test_good_runs_of_a_store_are_learned_by_their_exact_tokens(tmp_path: Path) -> None:
    def script(claim: AttemptedRollout) -> Script:
        seed = int(claim.rollout.metadata["seed"])  # type: ignore[call-overload]
        return Script(reward=float(seed % 2), calls=[([5, 6], [7, seed % 97])])

    async with (
        SqliteLightningStore(str(tmp_path / "past" / "store.sqlite")) as store,
        context_of(store, tmp_path / "past", script) as (context, _, first, _),
    ):
        await SFT(group_size=4, epochs=1).run(context)
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script) as (context, _, second, _),
    ):
        await SFT(stores=(str(tmp_path / "past"),), epochs=1).run(context)

    def tokens(learner: ConstantCritic) -> set[tuple[int, ...]]:
        return {tuple(one.token_ids) for samples, _ in learner.updates for one in samples}

    assert tokens(first) <= tokens(second)  # the preflight's rollouts of that run are in its store, too
    assert len(tokens(first)) > 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 0}, "top_k=0"),
        ({"files": "x"}, "files='x' must be a list"),
        ({"files": ["/none.jsonl"]}, "there is no file /none.jsonl"),
        ({"group_size": 0}, "no data are given"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SFT(**settings)


def test_files_need_a_learner_that_knows_the_chat_template(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="files need a learner"):
        SFT(files=(chats(tmp_path),)).check(ConstantCritic(), trainable=True)
    SFT(files=(chats(tmp_path),)).check(ChatLearner(), trainable=True)
    SFT().check(ConstantCritic(), trainable=True)


async def test_fine_tuning_ends_with_its_step_when_the_run_says_so(tmp_path: Path) -> None:
    learner, reason = ChatLearner(), "budget.max_minutes=1 is spent"

    async def ends_now() -> str | None:
        return reason if len(learner.updates) >= 2 else None

    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(reward=1.0)) as (context, notebook, _, _),
    ):
        context = replace(context, learner=learner, ends_now=ends_now)
        result = await SFT(files=(chats(tmp_path),), epochs=5).run(context)
    assert len(learner.updates) == 2
    assert result.iterations == 2
    assert result.checkpoint_dir is not None  # what was learned is kept
    assert result.after != []
    assert f"ends behind step 2: {reason}" in notebook.notes
