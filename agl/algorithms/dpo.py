"""DPO: direct preference optimization on pairs in a group, the best of a task's rollouts against the worst.

Source: arXiv:2305.18290, eq. 7. Differences: who is better says the reward and not a person; both sides are whole
    conversations of an agent, so what the environment said between its calls may differ, too, and is not learned (as
    in ETO, arXiv:2403.02502, eq. 6); rounds sample anew from the policy so far, the reference stays the first policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from agl.algorithms.tuning.examples import Example, pairs_of, samples_of_example
from agl.algorithms.tuning.loop import Lesson, TuningAlgorithm
from agl.errors import ConfigError, RunStoppedError
from agl.types import PreferenceLoss


@dataclass(frozen=True, kw_only=True)
class DPO(TuningAlgorithm):
    """Learns to prefer the better of two rollouts of a task.

    Args:
        epochs: one: the policy leaves what the pairs were sampled from soon enough.
        beta: how strongly the policy is held to the first one.
        likelihood_coef: weight of imitating the better rollout beside (arXiv:2404.19733, eq. 1); without it both sides
            of a pair become less likely.
        pairs_per_group: at most so many of a task's rollouts: best and worst, second best and second worst, ...
        min_margin: smallest difference of the rewards of a pair.
    """

    epochs: int = 1
    beta: float = 0.1
    likelihood_coef: float = 0.0
    pairs_per_group: int = 1
    min_margin: float = 0.0

    def __post_init__(self) -> None:
        TuningAlgorithm.__post_init__(self)
        if not self.beta > 0:
            raise ConfigError(f"beta={self.beta} must be above 0")
        if not self.likelihood_coef >= 0:
            raise ConfigError(f"likelihood_coef={self.likelihood_coef} must be 0 or more")
        if self.pairs_per_group < 1:
            raise ConfigError(f"pairs_per_group={self.pairs_per_group} must be at least 1")
        if not self.min_margin >= 0:
            raise ConfigError(f"min_margin={self.min_margin} must be 0 or more")
        if self.num_samples == 1:
            raise ConfigError("group_size=1: DPO compares rollouts of one task, so it needs at least 2")

    def loss(self) -> PreferenceLoss:
        """The preference of the better rollout over the worse, against the frozen first policy."""
        return PreferenceLoss(beta=self.beta, likelihood_coef=self.likelihood_coef)

    def lesson(self, given: Sequence[Example], rounds: Sequence[Sequence[Example]]) -> Lesson:
        """Pair the rollouts of the newest round, and of what was given."""
        pairs, without = pairs_of(
            [*given, *rounds[-1]], pairs_per_group=self.pairs_per_group, min_margin=self.min_margin
        )
        if not pairs:
            causes = ", ".join(f"{count} {cause}" for cause, count in sorted(without.items()))
            raise RunStoppedError(
                f"no group has two rollouts whose rewards are {self.min_margin:g} apart ({causes or 'no groups'}):"
                " use tasks of medium difficulty or a larger algorithm.group_size"
            )
        return Lesson(
            units=[
                [
                    *samples_of_example(pair.better, pair_id=str(number), preferred=True),
                    *samples_of_example(pair.worse, pair_id=str(number)),
                ]
                for number, pair in enumerate(pairs)
            ],
            metrics={
                "pairs": float(len(pairs)),
                "margin": fmean(pair.margin for pair in pairs),
                **{f"without_pair/{cause}": float(count) for cause, count in sorted(without.items())},
            },
        )
