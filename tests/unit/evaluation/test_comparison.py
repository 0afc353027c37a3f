"""Two sides on the same tasks: pairs, flips and the rollouts that show them."""

from __future__ import annotations

import json

import pytest

from agl.evaluation.comparison import compare
from agl.evaluation.report import Run, TaskRuns


def side(name: str, **rewards: list[float | None]) -> list[TaskRuns]:
    return [
        TaskRuns(
            task_id=task,
            task={"is": task},
            runs=[
                Run(rollout_id=f"{name}-{task}-{index}", reward=reward) for index, reward in enumerate(given)
            ],
        )
        for task, given in rewards.items()
    ]


FIRST = side("x", up=[0.0, 1.0, 1.0], down=[1.0, 0.0], same=[1.0], bad=[None], only_here=[1.0])
SECOND = side("y", same=[1.0], up=[0.0, 0.2], down=[0.4, 1.0, 1.0], bad=[1.0])


def test_tasks_are_paired_by_their_ids_and_the_others_are_counted() -> None:
    found = compare(FIRST, SECOND, threshold=1.0)
    assert found.difference.num_tasks == 3
    assert found.difference.mean == pytest.approx(((2 / 3 - 0.1) + (0.5 - 0.8) + 0) / 3)
    assert (found.better, found.worse, found.equal, found.unpaired) == (1, 1, 1, 2)


def test_a_flip_names_the_rollouts_that_show_it() -> None:
    found = compare(FIRST, SECOND, threshold=1.0)
    (gained,), (lost,) = found.gained, found.lost
    assert (gained.task_id, gained.first_rollout_id, gained.second_rollout_id) == ("up", "x-up-1", "y-up-0")
    assert (lost.task_id, lost.first_rollout_id, lost.second_rollout_id) == ("down", "x-down-1", "y-down-1")
    assert (gained.first, gained.second) == (pytest.approx(2 / 3), pytest.approx(0.1))


def test_half_of_the_rewards_is_not_yet_a_pass() -> None:
    found = compare(side("x", a=[1.0, 0.0]), side("y", a=[0.0, 0.0]), threshold=1.0)
    assert (found.gained, found.lost, found.better) == ([], [], 1)


def test_the_largest_flips_come_first() -> None:
    found = compare(side("x", a=[0.6], b=[1.0]), side("y", a=[0.4], b=[0.0]), threshold=0.5)
    assert [flip.task_id for flip in found.gained] == ["b", "a"]
    back = compare(side("y", a=[0.4], b=[0.0]), side("x", a=[0.6], b=[1.0]), threshold=0.5)
    assert [flip.task_id for flip in back.lost] == ["b", "a"]


def test_sides_without_a_common_reward_have_no_difference() -> None:
    found = compare(side("x", a=[None]), side("y", a=[1.0], b=[1.0]), threshold=1.0)
    assert (found.difference.mean, found.difference.p_value, found.unpaired) == (None, None, 2)
    assert json.loads(json.dumps(found.as_json()))["difference"]["mean"] is None
