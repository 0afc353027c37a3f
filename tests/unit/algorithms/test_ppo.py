"""PPO's credit: the reward lands on the last sampled token and flows back over all turns of the rollout."""

from __future__ import annotations

import pytest
from sampled_batches import ConstantCritic, batch_of, sampled, trajectory

from agl.algorithms.ppo import PPO
from agl.algorithms.sampling import SampledRollout
from agl.errors import ConfigError


async def test_credit_lies_on_sampled_tokens_only_and_flows_through_the_turns() -> None:
    # one sequence, two turns: sampled tokens at 1, 2 and 4; gamma .5, lambda 1, values 0: advantages .25, .5, 1
    batch = batch_of([sampled("r", "g", 1.0, [0, 1, 1, 0, 1])])
    ((sample,), _) = await PPO(gamma=0.5, gae_lambda=1.0, whiten=False).credit(batch, ConstantCritic())
    assert list(sample.advantages) == pytest.approx([0, 0.25, 0.5, 0, 1.0])
    assert sample.returns is not None
    assert list(sample.returns) == pytest.approx([0, 0.25, 0.5, 0, 1.0])
    assert sample.old_logprobs == [0, -0.1, -0.1, 0, -0.1]


async def test_a_rollout_of_several_sequences_is_one_episode() -> None:
    batch = batch_of([sampled("r", "g", 1.0, [0, 1], [0, 0, 1, 1])])
    (samples, _) = await PPO(gamma=0.5, gae_lambda=1.0, whiten=False).credit(batch, ConstantCritic())
    assert [list(sample.advantages) for sample in samples] == [
        pytest.approx([0, 0.25]),
        pytest.approx([0, 0, 0.5, 1.0]),
    ]


async def test_alternating_sequences_are_credited_in_the_order_of_their_calls() -> None:
    # A planner (calls 0 and 2) asks a helper (call 1): tokens in time are planner, helper, helper, planner. With gamma
    # .5 and the reward 1 at the end they get .125, .25, .5 and 1.
    planner, helper = trajectory([0, 1, 0, 1], numbers=[0, 2]), trajectory([0, 1, 1], numbers=[1])
    rollout = SampledRollout(rollout_id="r", group_id="g", reward=1.0, trajectories=[planner, helper])
    samples, _ = await PPO(gamma=0.5, gae_lambda=1.0, whiten=False).credit(
        batch_of([rollout]), ConstantCritic()
    )
    assert [list(sample.advantages) for sample in samples] == [
        pytest.approx([0, 0.125, 0, 1.0]),
        pytest.approx([0, 0.25, 0.5]),
    ]


async def test_the_critic_is_the_baseline() -> None:
    # gamma 1, lambda 1: advantage = reward - value at every step; returns = reward
    batch = batch_of([sampled("r", "g", 1.0, [0, 1, 1])])
    ((sample,), _) = await PPO(gae_lambda=1.0, whiten=False).credit(batch, ConstantCritic(0.4))
    assert list(sample.advantages) == pytest.approx([0, 0.6, 0.6])
    assert sample.returns is not None
    assert list(sample.returns) == pytest.approx([0, 1.0, 1.0])


async def test_call_rewards_credit_each_call() -> None:
    rollout = SampledRollout(
        rollout_id="r",
        group_id="g",
        reward=9.0,
        trajectories=[trajectory([0, 1, 1, 0, 1], rewards=[2.0, None])],
    )
    ((sample,), _) = await PPO(gae_lambda=0.0, whiten=False, call_rewards=True).credit(
        batch_of([rollout]), ConstantCritic()
    )
    assert list(sample.advantages) == pytest.approx([0, 0, 2.0, 0, 0])


async def test_whitening_is_over_all_sampled_tokens() -> None:
    batch = batch_of([sampled("a", "g", 1.0, [0, 1]), sampled("b", "g", 0.0, [0, 1])])
    (samples, _) = await PPO().credit(batch, ConstantCritic())
    # advantages 1 and 0: mean .5, sample deviation .7071
    assert [sample.advantages[1] for sample in samples] == pytest.approx([0.70711, -0.70711], abs=1e-4)


async def test_explained_variance_of_a_constant_critic_is_zero() -> None:
    batch = batch_of([sampled("a", "g", 1.0, [0, 1]), sampled("b", "g", 0.0, [0, 1])])
    _, metrics = await PPO(gae_lambda=1.0).credit(batch, ConstantCritic(0.3))
    assert metrics["critic/explained_variance"] == pytest.approx(0.0)


async def test_an_iteration_without_usable_rollouts_has_no_samples() -> None:
    assert await PPO().credit(batch_of(), ConstantCritic()) == ([], {})


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 1.5},
        {"gae_lambda": -0.1},
        {"value_clip": 0.0},
        {"value_coef": -1.0},
        {"iterations": 0},
        {"temperature": 0.0},
        {"minibatch_rollouts": 0},
        {"max_attempts": 0},
        {"rollout_timeout_seconds": 0.0},
        {"unresponsive_seconds": -1.0},
        {"clip_low": -0.2},
        {"clip_high": 0.0},
        {"kl_coef": -0.1},
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        PPO(**settings)  # type: ignore[arg-type]
