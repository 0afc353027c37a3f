"""GRPO's credit: each rollout against its group."""

from __future__ import annotations

import pytest
from sampled_batches import ConstantCritic, batch_of, sampled

from agl.algorithms.grpo import GRPO
from agl.errors import ConfigError


async def test_every_sampled_token_of_a_rollout_gets_its_advantage_in_the_group() -> None:
    batch = batch_of([sampled("a", "g", 1.0, [0, 1, 1], [0, 1]), sampled("b", "g", 0.0, [0, 0, 1])])
    samples, metrics = await GRPO().credit(batch, ConstantCritic())
    # rewards 1 and 0: sample deviation .7071, advantages +-.7071
    assert [list(sample.advantages) for sample in samples] == [
        pytest.approx([0, 0.70711, 0.70711], abs=1e-4),
        pytest.approx([0, 0.70711], abs=1e-4),
        pytest.approx([0, 0, -0.70711], abs=1e-4),
    ]
    assert metrics == {"groups/zero_variance": 0.0, "groups/used": 1.0}


async def test_a_rollout_with_more_turns_does_not_move_the_baseline() -> None:
    one_turn = batch_of([sampled("a", "g", 1.0, [0, 1]), sampled("b", "g", 0.0, [0, 1])])
    many = batch_of([sampled("a", "g", 1.0, [0, 1], [0, 1], [0, 1]), sampled("b", "g", 0.0, [0, 1])])
    first, _ = await GRPO().credit(one_turn, ConstantCritic())
    second, _ = await GRPO().credit(many, ConstantCritic())
    assert first[-1].advantages == second[-1].advantages


async def test_groups_of_equal_rewards_are_left_out_and_counted() -> None:
    batch = batch_of(
        [sampled("a", "g", 1.0, [0, 1]), sampled("b", "g", 1.0, [0, 1])],
        [sampled("c", "h", 1.0, [0, 1]), sampled("d", "h", 0.0, [0, 1])],
    )
    samples, metrics = await GRPO().credit(batch, ConstantCritic())
    assert [sample.rollout_id for sample in samples] == ["c", "d"]
    assert metrics == {"groups/zero_variance": 0.5, "groups/used": 1.0}


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="group_size=1"):
        GRPO(group_size=1)
