"""Baseline: run the validation tasks and change nothing. What every improvement is measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agl.algorithms.base import RunContext, RunResult
from agl.algorithms.retries import RetrySettings
from agl.algorithms.sampling import rollout_seed
from agl.errors import ConfigError
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.evaluate import Evaluation, evaluate
from agl.learners.base import Learner
from agl.metrics.base import Progress

_OWN_SETTINGS = {
    "temperature": "temperatures",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "seed of the run",
}


@dataclass(frozen=True, kw_only=True)
class Baseline(RetrySettings):
    """Evaluates the policy as it is; needs no learner. Limits of a rollout are in ``RetrySettings``.

    Args:
        repeats: rollouts of each validation task.
        max_tokens: longest answer of one call.
        temperatures: one evaluation each.
        sampling: further request parameters of every call.
    """

    repeats: int = 1
    max_tokens: int = 1024
    temperatures: list[float] = field(default_factory=lambda: [1.0, 0.0])
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        for name in ("repeats", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if not self.temperatures or min(self.temperatures) < 0:
            raise ConfigError(f"temperatures={self.temperatures} must name at least one, none below 0")
        for name, setting in _OWN_SETTINGS.items():
            if name in self.sampling:
                raise ConfigError(f"sampling.{name} has a setting of its own: {setting}")

    @property
    def needs_learner(self) -> bool:
        """It moves no weights."""
        return False

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Accept everything: it asks for answers only."""

    async def run(self, context: RunContext) -> RunResult:
        """Evaluate at each temperature; ``before`` and ``after`` are the same."""
        if not context.val_tasks:
            raise ConfigError("the data has no validation tasks, and the baseline runs nothing else")
        results = [await self._evaluate(context, name, sampling) for name, sampling in self._named().items()]
        values = {one.name: one.reward.mean for one in results if one.reward.mean is not None}
        if context.resume:
            context.metrics.rewind(-1)
        await context.report(0, values)
        counts = sum((one.counts for one in results), RolloutCounts())
        return RunResult(before=results, after=results, counts=counts)

    def _named(self) -> Mapping[str, dict[str, Any]]:
        base = {"top_p": 1.0, "max_tokens": self.max_tokens, **self.sampling}
        names = {0.0: "val/reward_greedy", 1.0: "val/reward"}
        return {names.get(t, f"val/reward_t{t:g}"): {**base, "temperature": t} for t in self.temperatures}

    async def _evaluate(self, context: RunContext, name: str, sampling: Mapping[str, Any]) -> Evaluation:
        label = name.removeprefix("val/")
        prefix = f"{context.prefix}-baseline-{label}"
        return await evaluate(
            context.store,
            context.val_tasks,
            name=name,
            id_prefix=prefix,
            resources_id=await context.policy.resources_id(f"val-{label}", sampling),
            seed=rollout_seed(context.seed, label),
            sampling=sampling,
            run_id=context.run_id,
            repeats=self.repeats,
            config=self.rollout_config(),
            on_wait=lambda waited: context.metrics.progress(
                Progress(phase="evaluating", done=waited.done, total=waited.total, waiting_for=waited.words)
            ),
        )
