"""The three ends of a rollout, counted: a reward, no reward, or an error. An error never becomes a reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agl.evaluation.rollouts import is_straggler
from agl.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCounts:
    """What became of a set of rollouts: ``enqueued = succeeded + cancelled + all failed`` once all are done.

    Args:
        enqueued: rollouts asked for.
        succeeded: ended without an error, with or without a reward.
        failed: ended with an error, by cause.
        cancelled: ended by a cancel, stragglers included.
        stragglers: cancelled because enough of those asked for with them had ended.
        without_reward: succeeded, but gave no reward.
        without_calls: gave a reward, but no model call was recorded (filled in by who looks at the spans).
        untrainable: had calls, but no sequence to learn from was left (filled in by who looks at the spans).
    """

    enqueued: int = 0
    succeeded: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    cancelled: int = 0
    stragglers: int = 0
    without_reward: int = 0
    without_calls: int = 0
    untrainable: int = 0

    def __add__(self, other: RolloutCounts) -> RolloutCounts:
        return RolloutCounts(
            enqueued=self.enqueued + other.enqueued,
            succeeded=self.succeeded + other.succeeded,
            failed=self.failed + other.failed,
            cancelled=self.cancelled + other.cancelled,
            stragglers=self.stragglers + other.stragglers,
            without_reward=self.without_reward + other.without_reward,
            without_calls=self.without_calls + other.without_calls,
            untrainable=self.untrainable + other.untrainable,
        )

    @property
    def bad(self) -> int:
        """Rollouts that nothing can be learned from, whatever the reason."""
        return (
            self.failed.total() + self.cancelled + self.without_reward + self.without_calls + self.untrainable
        )

    def metrics(self) -> dict[str, float]:
        """Return the counts by metric name."""
        named = {
            "rollouts/enqueued": self.enqueued,
            "rollouts/succeeded": self.succeeded,
            "rollouts/failed": self.failed.total(),
            "rollouts/cancelled": self.cancelled,
            "rollouts/stragglers": self.stragglers,
            "rollouts/without_reward": self.without_reward,
            "rollouts/without_calls": self.without_calls,
            "rollouts/untrainable": self.untrainable,
        }
        named |= {f"rollouts/failed/{cause}": count for cause, count in sorted(self.failed.items())}
        return {name: float(value) for name, value in named.items()}


def count_rollouts(rollouts: Sequence[Rollout]) -> RolloutCounts:
    """Count finished rollouts by how they ended."""
    succeeded = [rollout for rollout in rollouts if rollout.status == "succeeded"]
    return RolloutCounts(
        enqueued=len(rollouts),
        succeeded=len(succeeded),
        failed=Counter(cause_of(rollout) for rollout in rollouts if rollout.status == "failed"),
        cancelled=sum(rollout.status == "cancelled" for rollout in rollouts),
        stragglers=sum(is_straggler(rollout) for rollout in rollouts),
        without_reward=sum(rollout.reward is None for rollout in succeeded),
    )


def cause_of(rollout: Rollout) -> str:
    """The countable name of why a rollout failed."""
    return rollout.error.cause if rollout.error else "unknown"


def first_cause(rollouts: Sequence[Rollout]) -> str:
    """One line on the first rollout that went wrong, for the message that stops a run."""
    for rollout in rollouts:
        if rollout.status == "failed":
            message = rollout.error.message.strip().splitlines() if rollout.error else []
            return f"{cause_of(rollout)}: {message[0]}" if message else cause_of(rollout)
        if rollout.status == "cancelled":
            return f"rollout {rollout.rollout_id} was cancelled"
        if rollout.reward is None:
            return "the agent gave no reward: return a number or call agl.emit_reward"
    return "the rollouts have no model call with exact token ids"
