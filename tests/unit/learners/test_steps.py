import math
import random
from dataclasses import dataclass

import pytest

from agl.learners.steps import Schedule, learning_rate_at, minibatches, token_weights


@dataclass(frozen=True)
class Rates:
    learning_rate: float = 0.1
    warmup_steps: int = 0
    schedule: Schedule = "constant"


@dataclass(frozen=True, eq=False)
class Sequence:
    rollout: str


def cut(rows: list[Sequence], at_most: int | None, seed: int = 0) -> list[list[Sequence]]:
    return minibatches(rows, at_most, random.Random(seed), unit=lambda row: row.rollout)


def test_the_learning_rate_rises_in_equal_steps_and_stays() -> None:
    rates = [learning_rate_at(step, 0.5, Rates(warmup_steps=4)) for step in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_a_linear_schedule_ends_at_zero() -> None:
    line = Rates(warmup_steps=2, schedule="linear")
    assert [learning_rate_at(step, step / 5, line) for step in range(6)] == pytest.approx(
        [0.05, 0.08, 0.06, 0.04, 0.02, 0.0]
    )


def test_a_cosine_schedule_is_half_a_cosine() -> None:
    curve = Rates(schedule="cosine")
    assert [learning_rate_at(step, step / 4, curve) for step in range(5)] == pytest.approx(
        [0.1, 0.05 * (1 + math.sqrt(0.5)), 0.05, 0.05 * (1 - math.sqrt(0.5)), 0.0]
    )


def test_minibatches_are_whole_rollouts_spread_evenly() -> None:
    rows = [Sequence(f"r{index // 2}") for index in range(20)]  # 10 rollouts of two sequences
    batches = cut(rows, 4)
    assert [len({row.rollout for row in batch}) for batch in batches] == [3, 3, 4]
    assert [len(batch) for batch in batches] == [6, 6, 8]
    assert sorted(id(row) for batch in batches for row in batch) == sorted(id(row) for row in rows)


def test_without_a_size_all_rollouts_are_one_minibatch() -> None:
    assert [len(batch) for batch in cut([Sequence("a"), Sequence("b")], None)] == [2]


def test_the_order_of_rollouts_is_the_seeds() -> None:
    rows = [Sequence(f"r{index}") for index in range(10)]

    def order(seed: int) -> list[str]:
        return [row.rollout for batch in cut(rows, 2, seed) for row in batch]

    assert order(1) == order(1) != order(2)


def test_token_mean_weighs_every_token_alike() -> None:
    assert token_weights(["a", "a", "b"], [1, 3, 4], [1.0, 1.0, 2.0], "token_mean") == [1 / 8, 1 / 8, 2 / 8]


def test_rollout_mean_weighs_every_rollout_alike_however_many_sequences_it_has() -> None:
    # Rollout a has 1 + 3 tokens in two sequences, b has 8 in one: each rollout's tokens sum to half.
    weights = token_weights(["a", "a", "b"], [1, 3, 8], [1.0, 1.0, 1.0], "rollout_mean")
    assert weights == [1 / 8, 1 / 8, 1 / 16]
    assert 1 * weights[0] + 3 * weights[1] == 8 * weights[2] == 0.5
