"""Settings that cannot work are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from agl.algorithms.tuning.settings import TuningSettings
from agl.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds=0 must be at least 1"),
        ({"epochs": 0}, "epochs=0"),
        ({"minibatch_size": 0}, "minibatch_size=0"),
        ({"report_every": 0}, "report_every=0"),
        ({"group_size": -1}, "group_size=-1"),
        ({"group_size": 0}, "group_size=0 samples nothing, and no data are given"),
        ({"group_size": 0, "stores": ["s"], "rounds": 2}, "rounds=2 samples anew"),
        ({"stores": ["s"], "rounds": 2}, "rounds=2 samples anew"),
        ({"tasks_per_round": 0}, "tasks_per_round=0"),
        ({"evaluate_every": -1}, "evaluate_every=-1"),
        ({"temperature": 0.0}, "temperature=0"),
        ({"max_bad_fraction": 1.5}, "max_bad_fraction=1.5"),
        ({"store_tokens": "guess"}, "store_tokens=guess must be one of auto, record, template"),
        ({"stores": "s"}, "stores='s' must be a list"),
        ({"rollout_timeout_seconds": 0}, "rollout_timeout_seconds=0"),
    ],
)
def test_what_cannot_work_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TuningSettings(**settings)


def test_given_data_are_learned_from_alone_unless_a_group_size_says_otherwise() -> None:
    assert TuningSettings().num_samples == 8
    assert TuningSettings(stores=("s",)).num_samples == 0
    assert TuningSettings(stores=("s",), group_size=2, rounds=3).num_samples == 2


def test_the_token_of_a_store_is_not_shown() -> None:
    assert "hush" not in repr(TuningSettings(store_token="hush"))


def test_evaluations_sample_and_are_greedy() -> None:
    assert {name: one["temperature"] for name, one in TuningSettings().evaluations().items()} == {
        "val/reward": 1.0,
        "val/reward_greedy": 0.0,
    }
    assert list(TuningSettings(evaluate_greedy=False).evaluations()) == ["val/reward"]
