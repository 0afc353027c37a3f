import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agl.errors import AglError, CheckpointError, ConfigError
from agl.learners.base import Learner, ReadsChats
from agl.learners.torch.learner import TorchLearner
from agl.types.policy import Lora, Policy
from agl.types.sample import LikelihoodLoss, PolicyLoss, PreferenceLoss, TrainingSample, Trajectory

Make = Callable[..., Any]
LOSS = PolicyLoss(epochs=2, minibatch_rollouts=2)


async def weights_of(learner: TorchLearner) -> dict[str, torch.Tensor]:
    tensors = (await learner.weights()).tensors
    assert tensors is not None
    return dict(tensors)


def all_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def trajectories(make_trajectories: Make) -> list[Trajectory]:
    return make_trajectories()


async def on_policy(
    learner: TorchLearner, trajectories: list[Trajectory], make_samples: Make, **settings: Any
) -> list[TrainingSample]:
    return make_samples(await learner.logprobs(trajectories), trajectories, **settings)


async def test_logprobs_stand_at_their_tokens_and_zeros_between(
    opened: Make, make_trajectories: Make, full_logprobs: Make, plain_model: Any
) -> None:
    trajectories = make_trajectories(temperature=1.3)
    silent = replace(trajectories[0], loss_mask=[0] * len(trajectories[0].token_ids))
    async with opened() as learner:
        lines = await learner.logprobs([silent, *trajectories])
    assert lines[0] == [0.0] * len(silent.token_ids)
    for trajectory, line in zip(trajectories, lines[1:], strict=True):
        full = full_logprobs(plain_model, trajectory.token_ids, 1.3)
        expected = [logprob * mask for logprob, mask in zip(full, trajectory.loss_mask, strict=True)]
        assert line == pytest.approx(expected, abs=1e-5)


async def test_values_are_zero_at_first_and_then_learnt(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened(critic="head", critic_learning_rate=0.02) as learner:
        assert await learner.values(trajectories) == [[0.0] * len(t.token_ids) for t in trajectories]
        samples = await on_policy(learner, trajectories, make_samples)
        ones = [
            replace(s, returns=[1.0] * len(s.token_ids), advantages=[0.0] * len(s.token_ids)) for s in samples
        ]
        for _ in range(60):
            await learner.update(ones, PolicyLoss())
        lines = await learner.values(trajectories)
    for trajectory, line in zip(trajectories, lines, strict=True):
        assert len(line) == len(trajectory.token_ids)
        sampled = [value for value, mask in zip(line, trajectory.loss_mask, strict=True) if mask]
        assert all(0.5 < value < 1.5 for value in sampled)
        assert all(value == 0 for value, mask in zip(line, trajectory.loss_mask, strict=True) if not mask)


async def test_the_first_step_on_policy_starts_at_ratio_one(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened() as learner:
        report = await learner.update(await on_policy(learner, trajectories, make_samples), PolicyLoss())
    assert report.optimizer_steps == 1
    assert report.policy_version == 1
    assert report.metrics["logprob_gap_first"] < 1e-4
    assert report.metrics["kl"] == pytest.approx(0.0, abs=1e-5)
    assert report.metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert report.metrics["clip_fraction"] == 0.0
    assert report.metrics["learning_rate"] == 3e-4
    assert report.metrics["sequences"] == len(trajectories)
    assert report.metrics["sampled_tokens"] == sum(sum(t.loss_mask) for t in trajectories)
    assert report.metrics["seconds"] > 0


async def test_updates_learn_which_token_is_rewarded(
    opened: Make, policy: Policy, full_logprobs: Make
) -> None:
    """A bandit: from the prompt 1 3 the policy picks one of 20 tokens; half of them, the odd ones, give a reward."""
    prompt, generator = [1, 3], torch.Generator().manual_seed(0)
    mean_rewards: list[float] = []
    async with opened(learning_rate=0.01, critic="head") as learner:
        choices = [
            Trajectory(
                rollout_id=f"r{token}",
                agent=None,
                token_ids=[*prompt, token],
                loss_mask=[0, 0, 1],
                logprobs=[0.0] * 3,
                temperature=1.0,
                policy_version=0,
                call_ends=[3],
                call_rewards=[None],
            )
            for token in range(20)
        ]
        for _ in range(12):
            logprobs = [line[2] for line in await learner.logprobs(choices)]
            value = (await learner.values(choices[:1]))[0][2]
            picked = torch.multinomial(
                torch.tensor(logprobs).exp(), 64, replacement=True, generator=generator
            )
            rewards = [float(token % 2) for token in picked.tolist()]
            mean_rewards.append(sum(rewards) / len(rewards))
            samples = [
                TrainingSample(
                    rollout_id=f"s{index}",
                    token_ids=[*prompt, token],
                    loss_mask=[0, 0, 1],
                    old_logprobs=[0.0, 0.0, logprobs[token]],
                    advantages=[0.0, 0.0, reward - value],
                    returns=[0.0, 0.0, reward],
                )
                for index, (token, reward) in enumerate(zip(picked.tolist(), rewards, strict=True))
            ]
            await learner.update(samples, PolicyLoss(minibatch_rollouts=32, epochs=2))
    assert mean_rewards[0] < 0.7
    assert mean_rewards[-1] > 0.95


async def test_weights_are_a_copy_that_later_updates_leave_alone(
    opened: Make, trajectories: list[Trajectory], make_samples: Make, plain_model: Any
) -> None:
    async with opened() as learner:
        first = await learner.weights()
        assert first.policy_version == 0
        assert first.tensors is not None
        assert all_equal(dict(first.tensors), plain_model.state_dict())
        await learner.update(await on_policy(learner, trajectories, make_samples), LOSS)
        second = await learner.weights()
        assert second.policy_version == 1
        assert all_equal(dict(first.tensors), plain_model.state_dict())
        assert not all_equal(dict(first.tensors), dict(second.tensors or {}))


@pytest.mark.parametrize(
    ("lora", "settings"),
    [
        (
            None,
            {"critic": "head", "reference": True, "schedule": "cosine", "warmup_steps": 3},
        ),
        (None, {"critic": "model", "critic_warmup_steps": 3}),
        (Lora(rank=2, dropout=0.5), {"critic": "head"}),
    ],
)
async def test_a_resumed_learner_goes_on_bitwise_as_if_never_stopped(
    opened: Make,
    policy: Policy,
    trajectories: list[Trajectory],
    make_samples: Make,
    tmp_path: Path,
    lora: Lora | None,
    settings: dict[str, Any],
) -> None:
    policy = replace(policy, lora=lora)
    loss = replace(LOSS, kl_coef=0.1) if settings.get("reference") else LOSS
    async with opened(policy, **settings) as learner:
        samples = await on_policy(learner, trajectories, make_samples, with_returns=True)
        await learner.update(samples, loss)
        await learner.update(samples, loss)
        await learner.save(tmp_path / "saved")
        reports = [await learner.update(samples, loss) for _ in range(2)]
        weights, values = await weights_of(learner), await learner.values(trajectories)
    async with opened(policy, **settings) as resumed:
        await resumed.load(tmp_path / "saved")
        assert resumed.policy_version == reports[0].policy_version - 1
        again = [await resumed.update(samples, loss) for _ in range(2)]
        assert all_equal(await weights_of(resumed), weights)
        assert await resumed.values(trajectories) == values
    for report, repeated in zip(reports, again, strict=True):
        assert repeated.policy_version == report.policy_version
        assert repeated.metrics | {"seconds": 0.0} == report.metrics | {"seconds": 0.0}


async def test_the_seed_decides_the_run(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async def run(seed: int) -> dict[str, torch.Tensor]:
        async with opened(seed=seed) as learner:
            await learner.update(await on_policy(learner, trajectories, make_samples), LOSS)
            return await weights_of(learner)

    first = await run(1)
    assert all_equal(first, await run(1))
    assert not all_equal(first, await run(2))


async def test_a_checkpoint_of_another_learner_is_refused(
    opened: Make, policy: Policy, untied_policy: Policy, tmp_path: Path
) -> None:
    async with opened() as learner:
        await learner.save(tmp_path / "saved")
    for chosen, settings, what in (
        (untied_policy, {}, "architecture"),
        (replace(policy, lora=Lora(rank=2)), {}, "lora"),
        (policy, {"critic": "head"}, "critic"),
    ):
        async with opened(chosen, **settings) as other:
            with pytest.raises(CheckpointError, match=f"another learner: its {what}"):
                await other.load(tmp_path / "saved")


async def test_an_incomplete_checkpoint_leaves_the_learner_as_it_was(
    opened: Make, tmp_path: Path, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened() as learner:
        await learner.save(tmp_path / "saved")
        (tmp_path / "saved" / "optimizers.pt").unlink()
        await learner.update(await on_policy(learner, trajectories, make_samples), LOSS)
        weights = await weights_of(learner)
        with pytest.raises(CheckpointError, match=r"optimizers\.pt"):
            await learner.load(tmp_path / "saved")
        assert learner.policy_version == 1
        assert all_equal(await weights_of(learner), weights)


async def test_a_saved_policy_starts_another_learner(
    opened: Make, policy: Policy, trajectories: list[Trajectory], make_samples: Make, tmp_path: Path
) -> None:
    async with opened() as learner:
        await learner.update(await on_policy(learner, trajectories, make_samples), LOSS)
        await learner.save_policy(tmp_path / "policy")
        logprobs = await learner.logprobs(trajectories)
    async with opened(replace(policy, path=str(tmp_path / "policy"))) as other:
        assert await other.logprobs(trajectories) == logprobs


async def test_no_samples_change_nothing_and_say_so(opened: Make, trajectories: list[Trajectory]) -> None:
    silent = TrainingSample(
        rollout_id="r", token_ids=[3, 4], loss_mask=[0, 0], old_logprobs=[0.0, 0.0], advantages=[1.0, 1.0]
    )
    async with opened() as learner:
        before = await weights_of(learner)
        for samples in ([], [silent]):
            report = await learner.update(samples, PolicyLoss())
            assert report.optimizer_steps == report.policy_version == 0
            assert report.metrics["sequences"] == report.metrics["sampled_tokens"] == 0.0
        assert all_equal(await weights_of(learner), before)
        assert await learner.logprobs([]) == []


async def test_bad_numbers_skip_the_step_and_stop_the_run_at_the_third(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened() as learner:
        samples = await on_policy(learner, trajectories, make_samples)
        broken = [replace(samples[0], advantages=[math.inf] * len(samples[0].token_ids)), *samples[1:]]
        before = await weights_of(learner)
        report = await learner.update(broken, PolicyLoss(epochs=2))
        assert report.metrics["skipped_steps"] == 2
        assert report.optimizer_steps == report.policy_version == 0
        assert all_equal(await weights_of(learner), before)
        with pytest.raises(AglError, match="refused 3 optimizer steps in a row"):
            await learner.update(broken, PolicyLoss())


async def test_a_critics_warmup_does_not_count_as_a_policy_version(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened(critic="head", critic_warmup_steps=1) as learner:
        samples = await on_policy(learner, trajectories, make_samples, with_returns=True)
        before = await weights_of(learner)
        first = await learner.update(samples, PolicyLoss())
        assert (first.optimizer_steps, first.policy_version) == (1, 0)
        assert all_equal(await weights_of(learner), before)
        assert any(value != 0 for line in await learner.values(trajectories) for value in line)
        second = await learner.update(samples, PolicyLoss())
        assert (second.optimizer_steps, second.policy_version) == (1, 1)


async def test_a_missing_model_is_named_by_its_setting(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened() as learner:
        samples = await on_policy(learner, trajectories, make_samples, with_returns=True)
        with pytest.raises(ConfigError, match=r"learner\.critic=none"):
            await learner.update(samples, PolicyLoss())
        with pytest.raises(ConfigError, match=r"learner\.critic=none"):
            await learner.values(trajectories)
        with pytest.raises(ConfigError, match=r"learner\.reference=true"):
            await learner.update([replace(s, returns=None) for s in samples], PolicyLoss(kl_coef=0.1))


@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch_tokens": 0},
        {"num_threads": 0},
        {"critic_warmup_steps": 2},
        {"learning_rate": -1.0},
    ],
)
def test_a_wrong_setting_is_named_before_anything_starts(policy: Policy, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"learner.{next(iter(settings))}="):
        TorchLearner(policy, **settings)


def test_what_it_is_not_built_for_is_refused_before_it_is_entered(policy: Policy) -> None:
    learner = TorchLearner(policy)
    learner.check(PolicyLoss(), needs_values=False)
    with pytest.raises(ConfigError, match=r"algorithm\.kl_coef=0\.1 .*learner\.reference=true"):
        learner.check(PolicyLoss(kl_coef=0.1), needs_values=False)
    with pytest.raises(ConfigError, match=r"learner\.critic=none"):
        learner.check(PolicyLoss(), needs_values=True)
    TorchLearner(policy, critic="head", reference=True).check(PolicyLoss(kl_coef=0.1), needs_values=True)


async def test_bfloat16_on_a_cpu_is_refused(opened: Make) -> None:
    with pytest.raises(ConfigError, match=r"learner\.mixed_precision=bfloat16 is for GPUs"):
        async with opened(mixed_precision="bfloat16"):
            pass


async def test_a_learner_that_is_not_open_says_so(policy: Policy) -> None:
    learner = TorchLearner(policy)
    assert isinstance(learner, Learner)
    with pytest.raises(AglError, match="not open"):
        await learner.logprobs([])
    async with learner:
        assert learner.policy_version == 0
    with pytest.raises(AglError, match="not open"):
        await learner.weights()


async def test_an_update_leaves_the_event_loop_free(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with opened() as learner:
        samples = await on_policy(learner, trajectories, make_samples)
        update = asyncio.create_task(learner.update(samples, replace(LOSS, epochs=20)))
        turns = 0
        while not update.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 20
        assert (await update).optimizer_steps == 60


async def test_an_interrupt_does_not_wait_for_a_micro_batch_that_does_not_end(policy: Policy) -> None:
    release, left = threading.Event(), asyncio.CancelledError()
    learner = TorchLearner(policy, num_threads=1)
    await learner.__aenter__()
    computing = asyncio.ensure_future(learner._in_thread(lambda _: release.wait()))
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await learner.__aexit__(type(left), left, None)
        assert not computing.done()
    finally:
        release.set()
    assert await computing


async def test_closing_ends_an_update_under_way(
    opened: Make, trajectories: list[Trajectory], make_samples: Make
) -> None:
    async with asyncio.timeout(20):
        async with opened() as learner:
            samples = await on_policy(learner, trajectories, make_samples)
            update = asyncio.create_task(learner.update(samples, replace(LOSS, epochs=1_000_000)))
            await asyncio.sleep(0)
        with pytest.raises(AglError, match="closed"):
            await update


def written(trajectories: list[Trajectory]) -> list[TrainingSample]:
    """Sequences to imitate, each of a rollout of its own."""
    return [
        TrainingSample(rollout_id=str(number), token_ids=one.token_ids, loss_mask=one.loss_mask)
        for number, one in enumerate(trajectories)
    ]


def likelihood(lines: list[list[float]]) -> float:
    return sum(sum(line) for line in lines)


@pytest.mark.parametrize(
    "lora", [None, Lora(rank=2, target_modules=("q_proj", "v_proj"))], ids=["full", "lora"]
)
async def test_imitation_makes_the_given_tokens_likelier(
    opened: Make, policy: Policy, make_trajectories: Make, lora: Lora | None
) -> None:
    trajectories = make_trajectories()
    async with opened(replace(policy, lora=lora), learning_rate=1e-2) as learner:
        before = likelihood(await learner.logprobs(trajectories))
        for _ in range(3):
            report = await learner.update(written(trajectories), LikelihoodLoss())
            assert report.optimizer_steps == 1
        after = likelihood(await learner.logprobs(trajectories))
        tokens = sum(sum(one.loss_mask) for one in trajectories)
        assert report.metrics["negative_logprob"] == pytest.approx(report.metrics["loss"], rel=1e-6)
        assert -after / tokens < report.metrics["loss"] < -before / tokens
        assert learner.policy_version == 3


@pytest.mark.parametrize(
    "lora", [None, Lora(rank=2, target_modules=("q_proj", "v_proj"))], ids=["full", "lora"]
)
async def test_preference_moves_the_pair_apart_from_the_frozen_first_policy(
    opened: Make, policy: Policy, make_trajectories: Make, lora: Lora | None
) -> None:
    samples = [
        replace(sample, pair_id=str(number // 2), preferred=number % 2 == 0)
        for number, sample in enumerate(written(make_trajectories(count=8)))
    ]
    async with opened(replace(policy, lora=lora), learning_rate=1e-2, reference=True) as learner:
        reports = [await learner.update(samples, PreferenceLoss()) for _ in range(3)]
    losses = [report.metrics["loss"] for report in reports]
    assert losses[0] == pytest.approx(math.log(2), rel=1e-4)  # policy and reference are one
    assert losses[2] < losses[1] < losses[0]
    assert reports[2].metrics["margin"] > 0.0
    assert reports[2].metrics["pairs_right"] > reports[0].metrics["pairs_right"]


async def test_packed_sequences_move_the_weights_as_sequences_apart_do(
    opened: Make, make_trajectories: Make
) -> None:
    moved = []
    for packing in (False, True):
        async with opened(packing=packing, learning_rate=1e-2) as learner:
            report = await learner.update(written(make_trajectories()), LikelihoodLoss())
            moved.append((report.metrics["loss"], (await learner.weights()).tensors))
    assert moved[0][0] == pytest.approx(moved[1][0], rel=1e-6)
    for name, tensor in moved[0][1].items():
        torch.testing.assert_close(tensor, moved[1][1][name], rtol=1e-4, atol=1e-5, msg=name)


def test_preferences_without_a_reference_are_refused_before_anything_is_loaded(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"learner\.reference=true"):
        TorchLearner(policy).check(PreferenceLoss(), needs_values=False)
    TorchLearner(policy, reference=True).check(PreferenceLoss(), needs_values=False)
    TorchLearner(policy).check(LikelihoodLoss(), needs_values=False)


async def test_the_learner_says_how_its_policy_writes(opened: Make) -> None:
    async with opened() as learner:
        assert isinstance(learner, ReadsChats)
        chat = await learner.chat_tokens()
    assert chat.end_ids == {2}
    assert chat.tokenizer.encode("w0 w1", add_special_tokens=False) == [3, 4]
