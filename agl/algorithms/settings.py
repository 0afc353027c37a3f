"""OnPolicySettings: the settings of the on-policy loop that PPO and GRPO share, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from agl.algorithms.groups import GroupRules, IncompleteGroups
from agl.algorithms.training import TrainingSettings
from agl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class OnPolicySettings(TrainingSettings):
    """Settings of the loop; those of all loops that move weights are in ``TrainingSettings``.

    Args:
        iterations: sample-and-update cycles in all.
        tasks_per_iteration: tasks sampled in each.
        group_size: rollouts of each task.
        wait: ``all``, or a fraction: when so many of an iteration's rollouts are terminal the others are cancelled and
            counted as stragglers, which are not among the bad. Evaluations always wait for all.
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
        TrainingSettings.__post_init__(self)
        for name in (
            "iterations",
            "tasks_per_iteration",
            "group_size",
            "epochs",
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
