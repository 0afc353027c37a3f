"""The optimizers of policy and critic: one call a step, with schedule and clipping; bad numbers are refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from agl.errors import AglError, ConfigError
from agl.learners.steps import Schedule, learning_rate_at

MAX_SKIPPED_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """How far each step goes; the arguments are ``TorchLearner``'s of the same names."""

    learning_rate: float
    warmup_steps: int
    schedule: Schedule
    weight_decay: float
    beta1: float
    beta2: float
    max_grad_norm: float
    critic_learning_rate: float
    critic_warmup_steps: int

    def __post_init__(self) -> None:
        """Check what types cannot say.

        Raises:
            ConfigError: naming the setting.
        """
        for name in ("learning_rate", "max_grad_norm", "critic_learning_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"learner.{name}={getattr(self, name)} must be above 0")
        for name in ("warmup_steps", "weight_decay", "critic_warmup_steps"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"learner.{name}={getattr(self, name)} must not be below 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"learner.{name}={getattr(self, name)} must be at least 0 and below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What one step did. ``grad_norm`` is the policy's, before clipping; ``taken`` is False for a refused step."""

    taken: bool
    grad_norm: float
    learning_rate: float


class Optimizers:
    """AdamW for the policy and, beside it, for the critic; counts the steps of both.

    The critic's head has its own learning rate, a critic's own backbone the policy's. The two are clipped
    apart, so that a critic far off does not slow the policy down. The first ``critic_warmup_steps`` steps
    move the critic only.
    """

    def __init__(
        self,
        policy: Iterable[nn.Parameter],
        critic_head: Iterable[nn.Parameter],
        critic_backbone: Iterable[nn.Parameter],
        settings: OptimizerSettings,
    ) -> None:
        self._settings = settings
        self._policy_parameters = list(policy)
        head, backbone = list(critic_head), list(critic_backbone)
        self._critic_parameters = head + backbone
        self._policy = _adamw([(self._policy_parameters, settings.learning_rate)], settings)
        self._critic = (
            _adamw([(head, settings.critic_learning_rate), (backbone, settings.learning_rate)], settings)
            if head
            else None
        )
        self.steps = 0
        """Optimizer steps taken so far, refused ones not counted."""
        self.skipped_in_a_row = 0

    @property
    def trains_policy(self) -> bool:
        """Whether the next step moves the policy, too."""
        return self._critic is None or self.steps >= self._settings.critic_warmup_steps

    def step(self, loss: float, *, progress: float = 0.0) -> StepOutcome:
        """Move the weights along their gradients, and clear these.

        Args:
            loss: of the minibatch; a step whose loss or gradient is not finite is refused.
            progress: how much of the run is done, for the schedule.

        Raises:
            AglError: as many steps in a row as ``MAX_SKIPPED_IN_A_ROW`` were refused.
        """
        trains_policy = self.trains_policy
        policy_norm = self._clipped(self._policy_parameters) if trains_policy else 0.0
        critic_norm = self._clipped(self._critic_parameters)
        before_policy = 0 if self._critic is None else self._settings.critic_warmup_steps
        rate = (
            learning_rate_at(self.steps - before_policy, progress, self._settings) if trains_policy else 0.0
        )
        finite = all(math.isfinite(number) for number in (loss, policy_norm, critic_norm))
        if finite:
            if trains_policy:
                _set_rate(self._policy, rate)
                cast("Any", self._policy).step()
            if self._critic is not None:
                cast("Any", self._critic).step()
            self.steps += 1
        self.clear()
        self.skipped_in_a_row = 0 if finite else self.skipped_in_a_row + 1
        if self.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise AglError(
                f"the learner refused {self.skipped_in_a_row} optimizer steps in a row because loss or gradient "
                f"was not finite (loss {loss}, gradient norm {policy_norm}, critic's {critic_norm}) after "
                f"{self.steps} good ones; lower learner.learning_rate or look for broken rewards"
            )
        return StepOutcome(taken=finite, grad_norm=policy_norm, learning_rate=rate)

    def clear(self) -> None:
        """Forget the gradients gathered so far."""
        self._policy.zero_grad(set_to_none=True)
        if self._critic is not None:
            self._critic.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Return what ``restore`` needs: moments of both optimizers and the counters."""
        return {
            "policy": self._policy.state_dict(),
            "critic": None if self._critic is None else self._critic.state_dict(),
            "steps": self.steps,
            "skipped_in_a_row": self.skipped_in_a_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``; rates, betas and decay are those of the settings, not the stored ones."""
        _restore(self._policy, state["policy"])
        if self._critic is not None:
            _restore(self._critic, state["critic"])
        self.steps = state["steps"]
        self.skipped_in_a_row = state["skipped_in_a_row"]

    def _clipped(self, parameters: list[nn.Parameter]) -> float:
        if not parameters:
            return 0.0
        return float(nn.utils.clip_grad_norm_(parameters, self._settings.max_grad_norm, foreach=True))


def _adamw(groups: list[tuple[list[nn.Parameter], float]], settings: OptimizerSettings) -> torch.optim.AdamW:
    """Return AdamW; weight decay spares vectors (norms, biases), as is usual since GPT-2."""
    split: list[dict[str, Any]] = []
    for parameters, rate in groups:
        matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
        vectors = [parameter for parameter in parameters if parameter.ndim < 2]
        split.append({"params": matrices, "lr": rate, "weight_decay": settings.weight_decay})
        split.append({"params": vectors, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(
        [group for group in split if group["params"]], betas=(settings.beta1, settings.beta2), fused=True
    )


def _restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    own = [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]
    optimizer.load_state_dict(state)
    for group, settings in zip(optimizer.param_groups, own, strict=True):
        group.update(settings)


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
