"""The Trainer is whole when built, or says what is missing."""

from __future__ import annotations

import pytest

from agl.algorithms.baseline import Baseline
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

    with pytest.raises(ConfigError, match="PPO moves weights"):
        Trainer(agent=agent, data=Tasks(), algorithm=PPO(), inference=Elsewhere())  # type: ignore[arg-type]
