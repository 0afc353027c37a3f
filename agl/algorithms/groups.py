"""What to do with groups of which some rollouts gave nothing to learn from, and how long to wait for the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
IncompleteGroups = Literal["train", "drop", "fill"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """When a group is learned from.

    Args:
        min_valid: rollouts to learn from that a group must have.
        incomplete: of a group that lacks some, ``train`` on the others, ``drop`` it, or ``fill`` it with new rollouts.
        fill_rounds: how often a group is filled before it is taken as it is.
        wait_fraction: of the rollouts; when so many are terminal the others are cancelled.
    """

    min_valid: int = 1
    incomplete: IncompleteGroups = "train"
    fill_rounds: int = 2
    wait_fraction: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """What became of an iteration's groups: ``complete + incomplete + dropped`` are all there were.

    Args:
        complete: every member can be learned from.
        incomplete: trained without some members.
        dropped: left out as a whole, those without any usable member included.
        dropped_rollouts: usable rollouts that were left out with their group.
        filled: rollouts sampled in place of unusable ones.
    """

    complete: int = 0
    incomplete: int = 0
    dropped: int = 0
    dropped_rollouts: int = 0
    filled: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the counts by metric name."""
        return {
            "groups/complete": float(self.complete),
            "groups/incomplete": float(self.incomplete),
            "groups/dropped": float(self.dropped),
            "groups/dropped_rollouts": float(self.dropped_rollouts),
            "groups/filled": float(self.filled),
        }


def chosen_groups(
    groups: Sequence[list[T]], rules: GroupRules, *, group_size: int, filled: int = 0
) -> tuple[list[list[T]], GroupCounts]:
    """Return the groups to learn from, given each one's usable members, and what became of all."""
    least = group_size if rules.incomplete == "drop" else min(max(rules.min_valid, 1), group_size)
    chosen = [group for group in groups if len(group) >= least]
    complete = sum(len(group) >= group_size for group in chosen)
    counts = GroupCounts(
        complete=complete,
        incomplete=len(chosen) - complete,
        dropped=len(groups) - len(chosen),
        dropped_rollouts=sum(len(group) for group in groups if len(group) < least),
        filled=filled,
    )
    return chosen, counts
