from __future__ import annotations

from typing import Any

import pytest

from agl.algorithms.groups import GroupRules
from agl.algorithms.grpo import GRPO
from agl.algorithms.settings import OnPolicySettings
from agl.errors import ConfigError


def test_by_default_all_rollouts_are_waited_for_and_incomplete_groups_are_trained() -> None:
    assert OnPolicySettings().group_rules() == GroupRules()
    assert GRPO().group_rules() == GroupRules(min_valid=2)  # one rollout has nothing to be compared with


def test_the_settings_make_the_rules() -> None:
    settings = OnPolicySettings(wait=0.9, min_valid_per_group=3, incomplete_groups="fill", fill_rounds=5)
    assert settings.group_rules() == GroupRules(
        min_valid=3, incomplete="fill", fill_rounds=5, wait_fraction=0.9
    )


def test_evaluations_are_sampled_and_greedy() -> None:
    assert {name: one["temperature"] for name, one in OnPolicySettings().evaluations().items()} == {
        "val/reward": 1.0,
        "val/reward_greedy": 0.0,
    }
    assert list(OnPolicySettings(evaluate_greedy=False).evaluations()) == ["val/reward"]
    assert OnPolicySettings(temperature=0.7, max_tokens=9).train_sampling() == {
        "temperature": 0.7,
        "top_p": 1.0,
        "max_tokens": 9,
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"wait": 0.0},
        {"wait": 1.1},
        {"wait": float("nan")},
        {"wait": "most"},
        {"min_valid_per_group": 0},
        {"min_valid_per_group": 9},
        {"incomplete_groups": "keep"},
        {"fill_rounds": 0},
        {"max_bad_fraction": 1.5},
        {"retry_delay_seconds": -1.0},
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        OnPolicySettings(**settings)
