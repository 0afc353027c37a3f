"""What every loop that moves weights lets a person set."""

from __future__ import annotations

from typing import Any

import pytest
from sampled_batches import ConstantCritic

from agl.algorithms.training import TrainingSettings
from agl.errors import ConfigError


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0},
        {"save_every": 0},
        {"keep_checkpoints": 0},
        {"evaluate_every": -1},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"max_bad_fraction": 1.5},
        {"max_attempts": 0},
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(settings))}="):
        TrainingSettings(**settings)


def test_weights_need_a_learner_and_an_engine_that_takes_them() -> None:
    settings, learner = TrainingSettings(), ConstantCritic()
    assert settings.needs_learner
    assert settings.moved_by(learner, trainable=True) is learner
    for given, trainable in ((None, True), (learner, False)):
        with pytest.raises(ConfigError, match="learner=torch inference=transformers"):
            settings.moved_by(given, trainable=trainable)


def test_evaluations_are_sampled_and_greedy_whatever_is_learned_from() -> None:
    settings = TrainingSettings(temperature=0.7, max_tokens=9)
    assert settings.train_sampling() == {"temperature": 0.7, "top_p": 1.0, "max_tokens": 9}
    assert {name: one["temperature"] for name, one in settings.evaluations().items()} == {
        "val/reward": 1.0,
        "val/reward_greedy": 0.0,
    }
    assert list(TrainingSettings(evaluate_greedy=False).evaluations()) == ["val/reward"]
