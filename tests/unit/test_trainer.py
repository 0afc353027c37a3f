"""The Trainer is whole when built, or says what is missing."""

from __future__ import annotations

import pytest
from fake_engine import CountingEngine
from sampled_batches import ConstantCritic

from agl.algorithms.base import Algorithm
from agl.algorithms.baseline import Baseline
from agl.algorithms.grpo import GRPO
from agl.algorithms.ppo import PPO
from agl.errors import ConfigError
from agl.trainer import Trainer
from agl.types import Json, Mode


class Tasks:
    def load(self, mode: Mode) -> list[Json]:
        return [1, 2]


async def agent(task: int) -> float:
    return float(task)


def test_a_policy_or_an_engine_is_needed() -> None:
    with pytest.raises(ConfigError, match="set policy"):
        Trainer(agent=agent, data=Tasks(), algorithm=Baseline())


def test_an_algorithm_that_moves_weights_needs_a_policy_for_its_learner() -> None:
    class Elsewhere:
        pass

    with pytest.raises(ConfigError, match="PPO moves weights: set policy"):
        Trainer(agent=agent, data=Tasks(), algorithm=PPO(), inference=Elsewhere())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "learner", "trainable", "message"),
    [
        (PPO(), ConstantCritic(lacks="critic"), True, "critic"),
        (GRPO(kl_coef=0.1), ConstantCritic(lacks="reference"), True, "reference"),
        (GRPO(), ConstantCritic(), False, "inference=transformers"),
    ],
)
def test_parts_that_do_not_fit_the_algorithm_are_refused_before_anything_starts(
    algorithm: Algorithm, learner: ConstantCritic, message: str, *, trainable: bool
) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(
            agent=agent,
            data=Tasks(),
            algorithm=algorithm,
            inference=CountingEngine(trainable=trainable),
            learner=learner,
        )


def test_the_baseline_runs_on_any_engine() -> None:
    Trainer(agent=agent, data=Tasks(), algorithm=Baseline(), inference=CountingEngine(trainable=False))
