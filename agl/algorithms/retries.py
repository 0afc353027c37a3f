"""RetrySettings: how long a rollout may take, and how often and after which pauses it is executed again.

The limits travel with every rollout and the store applies them, so that they hold whichever process lives or dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from agl.errors import ConfigError
from agl.types import RolloutConfig
from agl.types.rollout import RetryCause


@dataclass(frozen=True, kw_only=True)
class RetrySettings:
    """Limits of each rollout.

    Args:
        rollout_timeout_seconds: longest time of one attempt.
        unresponsive_seconds: longest silence of an attempt before its worker counts as lost.
        max_attempts: executions of a rollout, the first included.
        retry_on: ends that lead to another attempt: failed, timeout, unresponsive. By default only lost workers do: an
            agent's own error is a result.
        retry_delay_seconds: longest pause before the second attempt; doubled for each further one, and shortened by up
            to half so that not all come back at once.
        retry_max_delay_seconds: no pause is longer.
    """

    rollout_timeout_seconds: float = 300.0
    unresponsive_seconds: float = 60.0
    max_attempts: int = 3
    retry_on: tuple[RetryCause, ...] = ("unresponsive",)
    retry_delay_seconds: float = 1.0
    retry_max_delay_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("rollout_timeout_seconds", "unresponsive_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0")
        if self.max_attempts < 1:
            raise ConfigError(f"max_attempts={self.max_attempts} must be at least 1")
        for name in ("retry_delay_seconds", "retry_max_delay_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} must be a number of seconds, 0 or more")
        unknown = set(self.retry_on) - set(get_args(RetryCause))
        if unknown:
            raise ConfigError(
                f"retry_on: {', '.join(sorted(unknown))}; known: {', '.join(get_args(RetryCause))}"
            )

    def rollout_config(self) -> RolloutConfig:
        """Return the limits as a rollout carries them."""
        return RolloutConfig(
            timeout_seconds=self.rollout_timeout_seconds,
            unresponsive_seconds=self.unresponsive_seconds,
            max_attempts=self.max_attempts,
            retry_on=tuple(self.retry_on),
            retry_delay_seconds=self.retry_delay_seconds,
            retry_max_delay_seconds=self.retry_max_delay_seconds,
        )
