"""The settings of the Tinker learner that belong together, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agl.errors import ConfigError
from agl.learners.steps import Schedule

if TYPE_CHECKING:
    import tinker

MIN_TTL_SECONDS = 3600
"""The service's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamSettings:
    """How far each step goes; the arguments are ``TinkerLearner``'s of the same names."""

    learning_rate: float
    warmup_steps: int
    schedule: Schedule
    weight_decay: float
    beta1: float
    beta2: float
    max_grad_norm: float

    def __post_init__(self) -> None:
        """Check what types cannot say.

        Raises:
            ConfigError: naming the setting.
        """
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"learner.{name}={getattr(self, name)} must be above 0")
        for name in ("warmup_steps", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"learner.{name}={getattr(self, name)} must not be below 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"learner.{name}={getattr(self, name)} must be at least 0 and below 1")

    def params(self, rate: float) -> tinker.AdamParams:
        """Return what the service's optimizer is to do at this learning rate; its epsilon is the service's own."""
        from tinker import AdamParams

        return AdamParams(
            learning_rate=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay,
            grad_clip_norm=self.max_grad_norm,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The low-rank adapter; the arguments are ``TinkerLearner``'s of the same names."""

    rank: int
    train_attn: bool
    train_mlp: bool
    train_unembed: bool

    def __post_init__(self) -> None:
        """Check what types cannot say.

        Raises:
            ConfigError: naming the setting.
        """
        if self.rank < 1:
            raise ConfigError(f"learner.rank={self.rank} must be at least 1")
        if not (self.train_attn or self.train_mlp or self.train_unembed):
            raise ConfigError(
                "learner.train_attn, train_mlp and train_unembed are all false: nothing is trained"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long the service keeps things, and is waited for; the arguments are ``TinkerLearner``'s."""

    weights_ttl_seconds: int
    state_ttl_seconds: int | None
    timeout_seconds: float
    connect_seconds: float

    def __post_init__(self) -> None:
        """Check what types cannot say.

        Raises:
            ConfigError: naming the setting.
        """
        for name in ("weights_ttl_seconds", "state_ttl_seconds"):
            ttl = getattr(self, name)
            if ttl is not None and ttl < MIN_TTL_SECONDS:
                raise ConfigError(f"learner.{name}={ttl} must be at least {MIN_TTL_SECONDS}")
        for name in ("timeout_seconds", "connect_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"learner.{name}={getattr(self, name)}: more than 0")
