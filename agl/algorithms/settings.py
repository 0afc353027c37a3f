"""OnPolicySettings: the settings of the on-policy loop that PPO and GRPO share, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agl.algorithms.groups import GroupRules, IncompleteGroups
from agl.algorithms.retries import RetrySettings
from agl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class OnPolicySettings(RetrySettings):
    """Settings of the loop; those of a single rollout are in ``RetrySettings``.

    Args:
        iterations: sample-and-update cycles in all.
        tasks_per_iteration: tasks sampled in each.
        group_size: rollouts of each task.
        temperature: of training rollouts; 1 samples from the policy itself.
        max_tokens: longest answer of one call.
        evaluate_every: iterations between evaluations on the validation tasks; the first and last policy always are.
        evaluate_greedy: evaluate at temperature 0 too.
        save_every: iterations between checkpoints.
        keep_checkpoints: how many stay.
        max_bad_fraction: stop the run above this fraction of rollouts without anything to learn from; those that
            ``wait`` cuts off are not among them.
        wait: ``all``, or a fraction: when so many of an iteration's rollouts are terminal the others are cancelled and
            counted as stragglers. Evaluations always wait for all.
        min_valid_per_group: a group with fewer rollouts to learn from is dropped.
        incomplete_groups: of a group that lacks some rollouts, ``train`` on the others, ``drop`` it, or ``fill`` it:
            sample again in place of those that gave nothing to learn from (not of stragglers).
        fill_rounds: how often that is done in an iteration before a group is taken as it is.
        clip_low: the ratio is clipped below 1 - clip_low.
        clip_high: the ratio is clipped above 1 + clip_high.
        kl_coef: weight of the KL to the frozen first policy (needs learner.reference=true).
        entropy_coef: weight of the entropy bonus.
        epochs: passes over the samples of an iteration.
        minibatch_rollouts: rollouts an optimizer step; null is all.
    """

    iterations: int = 40
    tasks_per_iteration: int = 16
    group_size: int = 8
    temperature: float = 1.0
    max_tokens: int = 1024
    evaluate_every: int = 10
    evaluate_greedy: bool = True
    save_every: int = 5
    keep_checkpoints: int = 2
    max_bad_fraction: float = 0.5
    wait: Literal["all"] | float = "all"
    min_valid_per_group: int = 1
    incomplete_groups: IncompleteGroups = "train"
    fill_rounds: int = 2
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    epochs: int = 1
    minibatch_rollouts: int | None = None

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        for name in (
            "iterations",
            "tasks_per_iteration",
            "group_size",
            "max_tokens",
            "epochs",
            "save_every",
            "keep_checkpoints",
            "min_valid_per_group",
            "fill_rounds",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("clip_low", "clip_high"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0")
        if self.minibatch_rollouts is not None and self.minibatch_rollouts < 1:
            raise ConfigError(
                f"minibatch_rollouts={self.minibatch_rollouts} must be at least 1, or null for all"
            )
        if self.kl_coef < 0:
            raise ConfigError(f"kl_coef={self.kl_coef} must not be negative")
        if self.evaluate_every < 0:
            raise ConfigError(f"evaluate_every={self.evaluate_every} must be 0 (only first and last) or more")
        if self.temperature <= 0:
            raise ConfigError(f"temperature={self.temperature}: training samples, so it must be above 0")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be between 0 and 1")
        self._check_groups()

    def _check_groups(self) -> None:
        if not 0 < self._wait_fraction() <= 1:
            raise ConfigError(f"wait={self.wait} must be all, or a fraction above 0 and up to 1")
        if self.incomplete_groups not in get_args(IncompleteGroups):
            raise ConfigError(
                f"incomplete_groups={self.incomplete_groups} must be one of {', '.join(get_args(IncompleteGroups))}"
            )
        if self.min_valid_per_group > self.group_size:
            raise ConfigError(
                f"min_valid_per_group={self.min_valid_per_group} is more than group_size={self.group_size}:"
                " every group would be dropped"
            )

    def group_rules(self) -> GroupRules:
        """Which groups are learned from, and how long their rollouts are waited for."""
        return GroupRules(
            min_valid=self.min_valid_per_group,
            incomplete=self.incomplete_groups,
            fill_rounds=self.fill_rounds,
            wait_fraction=self._wait_fraction(),
        )

    def _wait_fraction(self) -> float:
        try:
            return 1.0 if self.wait == "all" else float(self.wait)
        except ValueError:
            return math.nan

    def train_sampling(self) -> dict[str, Any]:
        """Request parameters of training calls."""
        return {"temperature": self.temperature, "top_p": 1.0, "max_tokens": self.max_tokens}

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Request parameters of each evaluation, by metric name."""
        sampled = {"temperature": 1.0, "top_p": 1.0, "max_tokens": self.max_tokens}
        named = {"val/reward": sampled}
        return named | (
            {"val/reward_greedy": {**sampled, "temperature": 0.0}} if self.evaluate_greedy else {}
        )
