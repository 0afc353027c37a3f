"""Diagnosis: what in the numbers explains a flat curve, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean


def diagnose(history: Sequence[dict[str, float]]) -> list[str]:
    """Return a line for each thing that looks wrong over the iterations' metrics; none when all is well."""
    if not history:
        return []
    lines: list[str] = []
    last = history[-5:]
    zero = [values["groups/zero_variance"] for values in last if "groups/zero_variance" in values]
    if zero and fmean(zero) > 0.8:
        lines.append(
            f"{fmean(zero):.0%} of the groups had equal rewards, which teach nothing: use tasks of medium difficulty,"
            " a larger algorithm.group_size or a finer reward"
        )
    entropies = [values["update/entropy"] for values in history if "update/entropy" in values]
    if len(entropies) >= 4 and entropies[-1] < 0.1 * entropies[0]:
        lines.append(
            f"entropy fell from {entropies[0]:.3f} to {entropies[-1]:.3f}: the policy hardly explores any more;"
            " lower learner.learning_rate or set algorithm.entropy_coef"
        )
    lengths = [v["samples/tokens_per_rollout"] for v in history if "samples/tokens_per_rollout" in v]
    if len(lengths) >= 4 and lengths[-1] < 0.25 * lengths[0]:
        lines.append(
            f"answers shrank from {lengths[0]:.0f} to {lengths[-1]:.0f} tokens a rollout: look at transcripts"
        )
    enqueued = sum(
        values.get("rollouts/enqueued", 0.0) - values.get("rollouts/stragglers", 0.0) for values in last
    )
    trained = sum(
        values.get("rollouts/succeeded", 0.0)
        - values.get("rollouts/without_reward", 0.0)
        - values.get("rollouts/without_calls", 0.0)
        - values.get("rollouts/untrainable", 0.0)
        for values in last
    )
    if enqueued and trained / enqueued < 0.7:
        lines.append(
            f"only {trained / enqueued:.0%} of the rollouts could be learned from: see the counters by cause"
        )
    return lines
