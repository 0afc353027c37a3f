from __future__ import annotations

import pytest

from agl.algorithms.groups import GroupCounts, GroupRules, chosen_groups

GROUPS = [[1, 2, 3, 4], [5, 6, 7], [8, 9], [10], []]
"""Usable members of five groups of four."""


@pytest.mark.parametrize(
    ("rules", "kept", "counts"),
    [
        (GroupRules(), [0, 1, 2, 3], GroupCounts(complete=1, incomplete=3, dropped=1)),
        (
            GroupRules(min_valid=2),
            [0, 1, 2],
            GroupCounts(complete=1, incomplete=2, dropped=2, dropped_rollouts=1),
        ),
        (
            GroupRules(min_valid=3),
            [0, 1],
            GroupCounts(complete=1, incomplete=1, dropped=3, dropped_rollouts=3),
        ),
        (
            GroupRules(min_valid=2, incomplete="drop"),
            [0],
            GroupCounts(complete=1, dropped=4, dropped_rollouts=6),
        ),
        (
            GroupRules(min_valid=2, incomplete="fill"),
            [0, 1, 2],
            GroupCounts(complete=1, incomplete=2, dropped=2, dropped_rollouts=1),
        ),
    ],
)
def test_which_groups_are_learned_from(rules: GroupRules, kept: list[int], counts: GroupCounts) -> None:
    chosen, counted = chosen_groups(GROUPS, rules, group_size=4)
    assert chosen == [GROUPS[index] for index in kept]
    assert counted == counts
    assert counted.complete + counted.incomplete + counted.dropped == len(GROUPS)
    assert sum(map(len, chosen)) + counted.dropped_rollouts == 10


def test_more_members_than_there_are_cannot_be_asked_for() -> None:
    chosen, _ = chosen_groups(
        [[1]], GroupRules(min_valid=2), group_size=1
    )  # a preflight runs single rollouts
    assert chosen == [[1]]


def test_every_count_is_a_metric() -> None:
    assert GroupCounts(complete=1, incomplete=2, dropped=3, dropped_rollouts=4, filled=5).metrics() == {
        "groups/complete": 1.0,
        "groups/incomplete": 2.0,
        "groups/dropped": 3.0,
        "groups/dropped_rollouts": 4.0,
        "groups/filled": 5.0,
    }
