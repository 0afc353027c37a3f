"""TrainingSettings: what every loop that moves weights lets a person set, on-policy or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agl.algorithms.prompts.spending import Budget
from agl.algorithms.retries import RetrySettings
from agl.errors import ConfigError
from agl.learners.base import Learner


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(RetrySettings):
    """Settings of the loops; those of a single rollout are in ``RetrySettings``.

    Args:
        temperature: of rollouts that are learned from; 1 samples from the policy itself.
        max_tokens: longest answer of one call.
        evaluate_every: iterations or optimizer steps between evaluations on the validation tasks; the first and last
            policy always are.
        evaluate_greedy: evaluate at temperature 0 too.
        save_every: iterations or optimizer steps between checkpoints.
        keep_checkpoints: how many stay.
        max_bad_fraction: stop the run above this fraction of rollouts without anything to learn from.
        budget: hard limits of the run, evaluations aside; null is none.
    """

    temperature: float = 1.0
    max_tokens: int = 1024
    evaluate_every: int = 10
    evaluate_greedy: bool = True
    save_every: int = 5
    keep_checkpoints: int = 2
    max_bad_fraction: float = 0.5
    budget: Budget | None = None

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        for name in ("max_tokens", "save_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.evaluate_every < 0:
            raise ConfigError(f"evaluate_every={self.evaluate_every} must be 0 or more")
        if not self.temperature > 0:
            raise ConfigError(
                f"temperature={self.temperature}: what is learned from is sampled, so it must be above 0"
            )
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be between 0 and 1")

    @property
    def needs_learner(self) -> bool:
        """Whether it moves weights."""
        return True

    def moved_by(self, learner: Learner | None, *, trainable: bool) -> Learner:
        """Return the learner that moves the weights.

        Raises:
            ConfigError: there is none, or the engine takes no weights.
        """
        if learner is None or not trainable:
            raise ConfigError(
                f"algorithm {type(self).__name__} moves weights: it needs a learner and an engine that takes"
                " new weights (learner=torch inference=transformers)"
            )
        return learner

    def train_sampling(self) -> dict[str, Any]:
        """Request parameters of the calls that are sampled to learn from."""
        return {"temperature": self.temperature, "top_p": 1.0, "max_tokens": self.max_tokens}

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Request parameters of each evaluation, by metric name."""
        sampled = {"temperature": 1.0, "top_p": 1.0, "max_tokens": self.max_tokens}
        named = {"val/reward": sampled}
        return named | (
            {"val/reward_greedy": {**sampled, "temperature": 0.0}} if self.evaluate_greedy else {}
        )
