"""Learner and engine of the Tinker service: the SDK itself over HTTP, against machines of our own that truly train."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tinker_service import KEY, TinkerMachines, tinker_machines
from tiny_policies import word_tokenizer, write_llama
from transformers import AutoModelForCausalLM

from agl.errors import CheckpointError, ConfigError, InferenceError, RunStoppedError
from agl.inference.base import Engine
from agl.inference.tinker import TinkerEngine
from agl.inference.tinker_service import TinkerServiceError
from agl.learners.base import Learner, ReadsChats
from agl.learners.tinker.learner import TinkerLearner
from agl.types import LikelihoodLoss, Policy, PolicyLoss, PolicyWeights, TrainingSample, Trajectory

WORDS = ["<pad>", "<s>", "</s>", "yes", "no", *(f"w{index}" for index in range(15))]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
ASKED = {"messages": [{"role": "user", "content": "w1 w2"}], "max_tokens": 8, "logprobs": True}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = write_llama(
        tmp_path_factory.mktemp("policy"),
        word_tokenizer(TEMPLATE, words=WORDS),
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    return Policy(path=str(folder))


@pytest.fixture
def machines(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerMachines]:
    with tinker_machines({policy.path: 64}) as machines:
        monkeypatch.setenv("TINKER_BASE_URL", machines.url)
        monkeypatch.setenv("TINKER_API_KEY", KEY)
        yield machines


def learner_of(policy: Policy, **settings: Any) -> TinkerLearner:
    return TinkerLearner(policy, **{"rank": 8, "learning_rate": 0.01} | settings)


def trajectory(number: int, **changes: Any) -> Trajectory:
    plain = Trajectory(
        rollout_id=f"r{number}",
        agent=None,
        token_ids=[5 + number % 9, 6, 3, 7, 4, 2],
        loss_mask=[0, 0, 1, 0, 1, 1],
        logprobs=[0.0] * 6,
        temperature=1.0,
        policy_version=0,
        call_ends=[6],
        call_rewards=[None],
    )
    return replace(plain, **changes)


def sample_of(one: Trajectory, old: list[float] | None = None, advantage: float = 1.0) -> TrainingSample:
    return TrainingSample(
        rollout_id=one.rollout_id,
        token_ids=one.token_ids,
        loss_mask=one.loss_mask,
        old_logprobs=old,
        advantages=[advantage] * len(one.token_ids),
    )


def plain_logprobs(policy: Policy, token_ids: list[int]) -> list[float]:
    """By transformers alone: of each token but the first."""
    model: Any = AutoModelForCausalLM.from_pretrained(policy.path, dtype=torch.float32)
    ids = torch.tensor([token_ids])
    with torch.no_grad():
        lines = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    return lines.gather(1, ids[0, 1:, None])[:, 0].tolist()


async def test_they_are_a_learner_and_an_engine(policy: Policy, machines: TinkerMachines) -> None:
    assert isinstance(learner_of(policy), Learner)
    assert isinstance(learner_of(policy), ReadsChats)
    assert isinstance(TinkerEngine(policy), Engine)


async def test_logprobs_are_the_base_models_until_the_first_step(
    policy: Policy, machines: TinkerMachines
) -> None:
    one = trajectory(0)
    silent = trajectory(1, loss_mask=[0] * 6)
    async with learner_of(policy) as learner:
        lines = await learner.logprobs([silent, one])
    expected = [0.0, *plain_logprobs(policy, list(one.token_ids))]
    assert lines[0] == [0.0] * 6
    assert lines[1] == pytest.approx(
        [number * mask for number, mask in zip(expected, one.loss_mask, strict=True)], abs=1e-4
    )
    assert machines.runs[next(iter(machines.runs))].model.num_gradients == 0


async def test_a_likelihood_step_moves_the_logprobs_of_its_tokens_up_by_the_services_optimizer(
    policy: Policy, machines: TinkerMachines
) -> None:
    one = trajectory(0)
    async with learner_of(policy, warmup_steps=2) as learner:
        before = (await learner.logprobs([one]))[0]
        reports = [await learner.update([sample_of(one)], LikelihoodLoss()) for _ in range(8)]
        after = (await learner.logprobs([one]))[0]
    assert [report.policy_version for report in reports] == [*range(1, 9)]
    assert [report.metrics["learning_rate"] for report in reports[:3]] == pytest.approx([0.005, 0.01, 0.01])
    assert reports[0].metrics["loss"] == pytest.approx(-sum(before) / 3, abs=1e-5)  # the mean of three tokens
    assert reports[0].metrics["tinker_unclipped_grad_l2_mean"] > 0
    assert sum(after) > sum(before) + 0.5
    assert machines.count("telemetry") == 0


@pytest.mark.parametrize("aggregation", ["token_mean", "rollout_mean"])
async def test_the_first_policy_step_has_the_gradient_of_our_loss(
    policy: Policy, machines: TinkerMachines, aggregation: Any
) -> None:
    short = trajectory(1, token_ids=[5, 6, 3], loss_mask=[0, 0, 1], logprobs=[0.0] * 3, call_ends=[3])
    rows = [trajectory(0), short]
    async with learner_of(policy) as learner:
        old = await learner.logprobs(rows)
        # Sampled by a policy that found the first token of each half as likely: a ratio of 2, beyond the clip.
        old = [[line - math.log(2) if place == 2 else line for place, line in enumerate(one)] for one in old]
        samples = [
            sample_of(row, line, advantage)
            for row, line, advantage in zip(rows, old, (1.0, -3.0), strict=True)
        ]
        report = await learner.update(samples, PolicyLoss(aggregation=aggregation))
    # Row 0: tokens of ratios 2, 1, 1 with A 1: -1.2 - 1 - 1. Row 1: ratio 2 with A -3: 6.
    by_hand = (-3.2 + 6) / 4 if aggregation == "token_mean" else (-3.2 / 3 + 6) / 2
    assert report.metrics["policy_loss"] == pytest.approx(by_hand, abs=1e-4)
    assert report.metrics["kl"] == pytest.approx(-2 * math.log(2) / 4, abs=1e-4)
    assert report.metrics["clip_fraction"] == pytest.approx(1 / 4)
    assert report.metrics["logprob_gap_first"] == pytest.approx(math.log(2), abs=1e-4)


async def test_many_samples_travel_in_pieces_and_are_one_step(
    policy: Policy, machines: TinkerMachines
) -> None:
    rows = [trajectory(number) for number in range(12)]
    async with learner_of(policy) as learner:
        old = await learner.logprobs(rows)
        report = await learner.update(
            [sample_of(row, line) for row, line in zip(rows, old, strict=True)], PolicyLoss()
        )
        assert (
            machines.count("forward_backward") == 6
        )  # 12 in pieces of 5, forward only and then with gradient
        assert report.optimizer_steps == machines.count("optim_step") == 1
        assert report.metrics["kl"] == pytest.approx(0, abs=1e-6)
        halves = await learner.update(
            [sample_of(row, line) for row, line in zip(rows, old, strict=True)],
            PolicyLoss(epochs=2, minibatch_rollouts=6),
        )
    assert (halves.optimizer_steps, halves.policy_version) == (4, 2)


async def test_nothing_to_learn_from_asks_nothing_of_the_service(
    policy: Policy, machines: TinkerMachines
) -> None:
    async with learner_of(policy) as learner:
        report = await learner.update([], PolicyLoss())
    assert (report.optimizer_steps, report.policy_version) == (0, 0)
    assert machines.count("forward_backward") == machines.count("optim_step") == 0


async def test_another_temperature_than_1_is_refused_by_its_setting(
    policy: Policy, machines: TinkerMachines
) -> None:
    warm = trajectory(0, temperature=0.7)
    async with learner_of(policy) as learner:
        with pytest.raises(ConfigError, match=r"algorithm\.temperature=1"):
            await learner.update([replace(sample_of(warm, [0.0] * 6), temperature=0.7)], PolicyLoss())
        with pytest.raises(ConfigError, match="value model"):
            await learner.values([warm])


async def test_the_engine_answers_with_the_very_tokens_and_their_logprobs(
    policy: Policy, machines: TinkerMachines
) -> None:
    async with TinkerEngine(policy) as engine:
        answer = await engine.complete_chat({**ASKED, "seed": 4, "n": 2})
        again = await engine.complete_chat({**ASKED, "seed": 4, "n": 2})
        chunks = [chunk async for chunk in engine.stream_chat({**ASKED, "seed": 4, "n": 2, "stream": True})]
    assert answer["prompt_token_ids"] == [6, 7]
    for choice, twin in zip(answer["choices"], again["choices"], strict=True):
        ids = choice["token_ids"]
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert ids == twin["token_ids"]
        assert logprobs == pytest.approx(plain_logprobs(policy, [6, 7, *ids])[1:], abs=1e-4)
        assert choice["finish_reason"] == ("stop" if ids[-1] == 2 else "length")
        assert choice["message"]["content"] == " ".join(WORDS[token] for token in ids if token > 2)
    streamed = {
        place: [
            chunk["choices"][0]
            for chunk in chunks
            if chunk["choices"] and chunk["choices"][0]["index"] == place
        ]
        for place in (0, 1)
    }
    for place, choice in enumerate(answer["choices"]):
        assert [token for one in streamed[place] for token in one["token_ids"]] == choice["token_ids"]
        assert (
            "".join(one["delta"].get("content", "") for one in streamed[place])
            == choice["message"]["content"]
        )
    assert chunks[-1]["usage"] == answer["usage"]
    assert answer["policy_version"] == 0


async def test_logprobs_are_left_out_where_nobody_knows_what_they_mean(
    policy: Policy, machines: TinkerMachines, caplog: pytest.LogCaptureFixture
) -> None:
    async with TinkerEngine(policy) as engine:
        for changes in ({"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 3}, {"temperature": 0}):
            answer = await engine.complete_chat({**ASKED, **changes})
            assert answer["choices"][0]["logprobs"] is None, changes
            assert answer["choices"][0]["token_ids"]
    assert [record.message for record in caplog.records if "algorithm.temperature=1" in record.message]


async def test_a_stop_string_ends_the_answer_behind_its_token(
    policy: Policy, machines: TinkerMachines
) -> None:
    async with TinkerEngine(policy) as engine:
        answer = await engine.complete_chat({**ASKED, "seed": 4})
        ids = answer["choices"][0]["token_ids"]
        place = next(place for place, token in enumerate(ids) if token > 2)
        cut = await engine.complete_chat({**ASKED, "seed": 4, "stop": WORDS[ids[place]]})
    assert cut["choices"][0]["token_ids"] == ids[: place + 1]
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert WORDS[ids[place]] not in cut["choices"][0]["message"]["content"]
    asked = [body["sampling_params"]["stop"] for name, body in machines.calls if name == "asample"]
    assert asked == [[2], [WORDS[ids[place]]]]


async def test_the_learners_weights_are_served_by_name(policy: Policy, machines: TinkerMachines) -> None:
    one = trajectory(0, token_ids=[6, 7, 3, 3, 3, 2])
    async with learner_of(policy, learning_rate=0.05) as learner, TinkerEngine(policy) as engine:
        for _ in range(30):
            await learner.update([sample_of(replace(one, loss_mask=[0, 0, 1, 1, 1, 1]))], LikelihoodLoss())
        weights = await learner.weights()
        twice = await learner.weights()
        await engine.load_weights(weights)
        answer = await engine.complete_chat({**ASKED, "seed": 1})
        assert engine.policy_version == answer["policy_version"] == 30
    async with TinkerEngine(policy, weights=weights.remote) as engine:  # to measure them again, later
        again = await engine.complete_chat({**ASKED, "seed": 1})
        assert again["choices"][0]["token_ids"] == answer["choices"][0]["token_ids"]
    assert weights.tensors is weights.path is None
    assert (weights.remote or "").startswith("tinker://")
    assert weights.remote != twice.remote
    assert set(answer["choices"][0]["message"]["content"].split()) == {"yes"}
    saved = [body for name, body in machines.calls if name == "save_weights_for_sampler"]
    assert [body["ttl_seconds"] for body in saved] == [86_400, 86_400]


async def test_weights_of_other_learners_and_lost_ones_are_refused_and_the_old_ones_served_on(
    policy: Policy, machines: TinkerMachines
) -> None:
    async with TinkerEngine(policy) as engine:
        with pytest.raises(ConfigError, match="learner=tinker goes with it"):
            await engine.load_weights(PolicyWeights(policy_version=1, tensors={}))
        with pytest.raises(InferenceError, match="no sampler weights tinker://a/sampler_weights/b"):
            await engine.load_weights(PolicyWeights(policy_version=1, remote="tinker://a/sampler_weights/b"))
        assert (await engine.complete_chat(ASKED))["policy_version"] == 0
    with pytest.raises(InferenceError, match="closed"):
        await engine.complete_chat(ASKED)


async def test_a_state_goes_on_as_if_never_stopped(
    policy: Policy, machines: TinkerMachines, tmp_path: Path
) -> None:
    rows = [trajectory(number) for number in range(4)]
    loss = PolicyLoss(minibatch_rollouts=1)

    async def steps(learner: TinkerLearner, count: int) -> list[dict[str, float]]:
        samples = [sample_of(row, [-1.0] * 6) for row in rows]
        reports = [await learner.update(samples, loss) for _ in range(count)]
        clocks = ("seconds",)
        return [{k: v for k, v in one.metrics.items() if k not in clocks} for one in reports]

    async with learner_of(policy, schedule="linear", warmup_steps=12) as learner:
        await steps(learner, 2)
        await learner.save(tmp_path / "state")
        expected = await steps(learner, 2)
    async with learner_of(policy, schedule="linear", warmup_steps=12) as learner:
        await learner.load(tmp_path / "state")
        assert learner.policy_version == 2
        assert await steps(learner, 2) == expected
    text = (tmp_path / "state" / "tinker.json").read_text()
    assert KEY not in text


async def test_a_state_that_is_gone_or_of_another_adapter_is_a_checkpoint_error(
    policy: Policy, machines: TinkerMachines, tmp_path: Path
) -> None:
    async with learner_of(policy) as learner:
        await learner.save(tmp_path / "state")
        with pytest.raises(CheckpointError, match="is not empty"):
            await learner.save(tmp_path / "state")
        with pytest.raises(CheckpointError, match=r"has no tinker\.json"):
            await learner.load(tmp_path / "nothing")
    async with learner_of(policy, rank=4) as learner:
        with pytest.raises(CheckpointError, match="its rank is 8, here it is 4"):
            await learner.load(tmp_path / "state")
    machines.states.clear()
    async with learner_of(policy) as learner:
        with pytest.raises(CheckpointError, match="no checkpoint tinker://"):
            await learner.load(tmp_path / "state")


async def test_the_adapter_comes_home_with_the_tokenizer_and_gives_the_policys_logprobs(
    policy: Policy, machines: TinkerMachines, tmp_path: Path
) -> None:
    from peft import PeftModel

    one = trajectory(0)
    async with learner_of(policy) as learner:
        for _ in range(5):
            await learner.update([sample_of(one)], LikelihoodLoss())
        expected = (await learner.logprobs([one]))[0]
        await learner.save_policy(tmp_path)
    about = json.loads((tmp_path / "tinker.json").read_text())
    assert about["base_model"] == policy.path
    assert about["weights"] in machines.samplers
    assert load_file(tmp_path / "adapter_model.safetensors")
    assert (tmp_path / "tokenizer.json").is_file()
    base = AutoModelForCausalLM.from_pretrained(policy.path, dtype=torch.float32)
    model: Any = PeftModel.from_pretrained(base, str(tmp_path))
    ids = torch.tensor([list(one.token_ids)])
    with torch.no_grad():
        lines = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    assert [lines[place - 1].item() for place in (2, 4, 5)] == pytest.approx(
        [expected[place] for place in (2, 4, 5)], abs=1e-4
    )


async def test_an_adapter_that_is_not_given_out_leaves_its_name(
    policy: Policy, machines: TinkerMachines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machines.fail("save_weights_external", 403)
    async with learner_of(policy) as learner:
        await learner.save_policy(tmp_path)
    weights = json.loads((tmp_path / "tinker.json").read_text())["weights"]
    assert any(weights in record.message for record in caplog.records)


@pytest.mark.parametrize("fault", [429, 500, 503, "drop"])
async def test_what_passes_is_survived_and_no_step_is_taken_twice(
    policy: Policy, machines: TinkerMachines, fault: Any
) -> None:
    one = trajectory(0)
    async with learner_of(policy) as learner, TinkerEngine(policy) as engine:
        for operation in ("forward_backward", "optim_step", "retrieve_future", "asample"):
            machines.fail(operation, fault)
        report = await learner.update([sample_of(one)], LikelihoodLoss())
        answer = await engine.complete_chat(ASKED)
    run = next(iter(machines.runs.values()))
    assert report.optimizer_steps == 1
    assert run.model.num_gradients == 1
    assert answer["choices"][0]["token_ids"]
    assert not any(machines.faults.values())


async def test_an_expired_answer_ends_the_step_with_what_to_do_and_a_call_is_asked_again(
    policy: Policy, machines: TinkerMachines
) -> None:
    async with learner_of(policy) as learner, TinkerEngine(policy) as engine:
        machines.fail("retrieve_future", 410)
        answer = await engine.complete_chat(ASKED)
        assert answer["choices"][0]["token_ids"]
        assert machines.count("asample") == 2
        machines.fail("retrieve_future", 410)
        with pytest.raises(RunStoppedError, match=r"did not take the optimizer step.*expired.*--resume"):
            await learner.update([sample_of(trajectory(0))], LikelihoodLoss())


async def test_a_request_that_the_service_refuses_says_why(policy: Policy, machines: TinkerMachines) -> None:
    async with learner_of(policy) as learner, TinkerEngine(policy) as engine:
        machines.fail("optim_step", 422)
        with pytest.raises(RunStoppedError, match="injected 422"):
            await learner.update([sample_of(trajectory(0))], LikelihoodLoss())
        machines.fail("asample", 403)
        with pytest.raises(InferenceError, match="injected 403") as caught:
            await engine.complete_chat(ASKED)
        assert caught.value.status == 502


async def test_a_service_that_does_not_answer_is_waited_for_no_longer_than_the_limit(
    policy: Policy, machines: TinkerMachines
) -> None:
    async with TinkerEngine(policy, timeout_seconds=2.0) as engine:
        machines.fail("asample", *[503] * 50)
        with pytest.raises(InferenceError, match="no answer within 2 s") as caught:
            await engine.complete_chat(ASKED)
        assert caught.value.status == 504
    machines.fail("client_config", *[503] * 50)
    with pytest.raises(TinkerServiceError, match=r"no session.*no answer within 1 s"):
        await learner_of(policy, connect_seconds=1.0).__aenter__()


async def test_a_wrong_key_or_model_is_a_setting_at_fault_and_the_key_is_in_no_message(
    policy: Policy,
    machines: TinkerMachines,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(ConfigError, match=r"learner\.base_model=Qwen/Other: .* did you mean|it has"):
        await learner_of(policy, base_model="Qwen/Other").__aenter__()
    with pytest.raises(ConfigError, match=r"policy\.max_length=65 is more than the service's 64"):
        await TinkerEngine(replace(policy, max_length=65)).__aenter__()
    monkeypatch.setenv("TINKER_API_KEY", "tml-wrong-secret")
    with pytest.raises(ConfigError, match=r"TINKER_API_KEY: .*no such key") as caught:
        await TinkerEngine(policy).__aenter__()
    assert "wrong-secret" not in str(caught.value)
    monkeypatch.delenv("TINKER_API_KEY")
    with pytest.raises(ConfigError, match="environment variable TINKER_API_KEY"):
        await learner_of(policy).__aenter__()
    assert "secret" not in caplog.text


async def test_a_call_that_is_given_up_frees_the_service(policy: Policy, machines: TinkerMachines) -> None:
    async with TinkerEngine(policy) as engine:
        machines.fail("asample", *[429] * 9)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await engine.complete_chat(ASKED)
        machines.faults.clear()
        assert (await engine.complete_chat(ASKED))["choices"]
