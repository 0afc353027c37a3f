from __future__ import annotations

from typing import Any

import pytest

from agl.algorithms.retries import RetrySettings
from agl.errors import ConfigError
from agl.types import RolloutConfig


def test_the_limits_travel_with_every_rollout() -> None:
    settings = RetrySettings(
        rollout_timeout_seconds=9,
        unresponsive_seconds=4,
        max_attempts=5,
        retry_on=("failed", "timeout"),
        retry_delay_seconds=2,
        retry_max_delay_seconds=30,
    )
    assert settings.rollout_config() == RolloutConfig(
        timeout_seconds=9,
        unresponsive_seconds=4,
        max_attempts=5,
        retry_on=("failed", "timeout"),
        retry_delay_seconds=2,
        retry_max_delay_seconds=30,
    )


def test_by_default_only_a_lost_worker_leads_to_another_attempt() -> None:
    config = RetrySettings().rollout_config()
    assert (config.retry_on, config.max_attempts, config.retry_delay_seconds) == (("unresponsive",), 3, 1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"rollout_timeout_seconds": 0},
        {"unresponsive_seconds": -1},
        {"max_attempts": 0},
        {"retry_delay_seconds": -0.1},
        {"retry_delay_seconds": float("nan")},
        {"retry_max_delay_seconds": float("inf")},
        {"retry_on": ("failed", "bored")},
    ],
)
def test_impossible_limits_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        RetrySettings(**settings)
