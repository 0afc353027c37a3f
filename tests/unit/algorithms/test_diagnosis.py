"""The diagnosis names what explains a flat curve."""

from __future__ import annotations

from agl.algorithms.diagnosis import diagnose

HEALTHY = {
    "groups/zero_variance": 0.3,
    "update/entropy": 0.5,
    "samples/tokens_per_rollout": 30.0,
    "rollouts/enqueued": 10.0,
    "rollouts/succeeded": 10.0,
}


def test_a_healthy_run_has_no_remarks() -> None:
    assert diagnose([HEALTHY] * 10) == []
    assert diagnose([]) == []


def test_equal_rewards_entropy_collapse_short_answers_and_lost_rollouts_are_named() -> None:
    bad = {
        "groups/zero_variance": 0.95,
        "update/entropy": 0.01,
        "samples/tokens_per_rollout": 2.0,
        "rollouts/enqueued": 10.0,
        "rollouts/succeeded": 6.0,
    }
    text = "\n".join(diagnose([HEALTHY, *[bad] * 5]))
    for word in ("equal rewards", "entropy fell", "answers shrank", "only 60%"):
        assert word in text
