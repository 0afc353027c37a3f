"""What an update reports: computed here, from the logprobs that the service sends back with its gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agl.learners.tinker.datums import Row
from agl.types.sample import LikelihoodLoss, PolicyLoss


@dataclass(slots=True, kw_only=True)
class Tally:
    """The sums of one minibatch."""

    tokens: int = 0
    loss: float = 0.0
    negative_logprob: float = 0.0
    gap: float = 0.0
    gap_max: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0


def tally_of(
    rows: Sequence[Row],
    logprobs: Sequence[Sequence[float]],
    token_weights: Sequence[float],
    loss: PolicyLoss | LikelihoodLoss,
) -> Tally:
    """Return the sums over a minibatch's sampled tokens.

    Args:
        rows: of the minibatch.
        logprobs: of each row's sampled tokens, before the step.
        token_weights: of each row's tokens in the loss.
        loss: that was asked for.
    """
    tally = Tally()
    for row, line, weight in zip(rows, logprobs, token_weights, strict=True):
        tally.tokens += len(line)
        tally.negative_logprob -= math.fsum(line)
        if isinstance(loss, LikelihoodLoss):
            tally.loss -= weight * math.fsum(line)
            continue
        assert row.old_logprobs is not None
        assert row.advantages is not None
        for new, old, advantage in zip(line, row.old_logprobs, row.advantages, strict=True):
            ratio = math.exp(min(new - old, 20.0))
            free = -ratio * advantage
            bounded = -min(max(ratio, 1.0 - loss.clip_low), 1.0 + loss.clip_high) * advantage
            tally.loss += weight * max(free, bounded)
            tally.clipped += bounded > free
            tally.gap += old - new
            tally.gap_max = max(tally.gap_max, abs(old - new))
            tally.ratio_max = max(tally.ratio_max, ratio)
    return tally


@dataclass(slots=True, kw_only=True)
class UpdateMetrics:
    """The numbers of an update's minibatches."""

    loss: PolicyLoss | LikelihoodLoss
    tallies: list[Tally] = field(default_factory=list[Tally])
    service: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])
    """What the service reports about its optimizer steps, under names of its own."""
    learning_rate: float = 0.0

    def metrics(self) -> dict[str, float]:
        """Return losses as means over minibatches, the rest as means over tokens; the service's own under ``tinker_``.

        KL and ratio are those between the policy that sampled and the one before each step.
        """
        tallies = self.tallies
        tokens = sum(tally.tokens for tally in tallies)
        mean_loss = math.fsum(tally.loss for tally in tallies) / len(tallies)
        found = {"loss": mean_loss, "learning_rate": self.learning_rate}
        found["negative_logprob"] = math.fsum(tally.negative_logprob for tally in tallies) / tokens
        if isinstance(self.loss, PolicyLoss):
            found |= {
                "policy_loss": mean_loss,
                "kl": math.fsum(tally.gap for tally in tallies) / tokens,
                "clip_fraction": sum(tally.clipped for tally in tallies) / tokens,
                "ratio_max": max(tally.ratio_max for tally in tallies),
                "logprob_gap_first": tallies[0].gap_max,
            }
        names = {name for reported in self.service for name in reported}
        for name in sorted(names):
            values = [reported[name] for reported in self.service if name in reported]
            found[f"tinker_{name.replace(':', '_')}"] = math.fsum(values) / len(values)
        return found
