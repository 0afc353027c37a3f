"""Board: counters, times and how numbers read."""

from __future__ import annotations

import math

import pytest

from agl.metrics.base import Progress
from agl.metrics.board import (
    Board,
    counts,
    duration,
    iteration_line,
    phase_words,
    position,
    short,
    sparkline,
    troubles,
    written,
)


def test_remaining_time_is_the_mean_iteration_times_what_is_left() -> None:
    board = Board(started_at=100.0)
    assert board.remaining_seconds(100.0) is None
    board.take_progress(Progress(phase="sampling", iteration=1, total_iterations=5), 110.0)
    board.take_metrics({"train/reward": 0.1}, 120.0)
    board.take_progress(Progress(phase="sampling", iteration=2, total_iterations=5), 120.0)
    # one iteration took 10 s; four are left, of which 4 s have passed
    assert board.remaining_seconds(124.0) == pytest.approx(36.0)
    assert board.elapsed_seconds(124.0) == 24.0


def test_a_reported_duration_is_believed() -> None:
    board = Board(started_at=0.0)
    board.take_progress(Progress(phase="sampling", iteration=1, total_iterations=3), 0.0)
    board.take_metrics({"train/reward": 0.1, "time/iteration_seconds": 7.0}, 100.0)
    board.take_progress(Progress(phase="sampling", iteration=2, total_iterations=3), 100.0)
    assert board.remaining_seconds(100.0) == pytest.approx(14.0)


def test_counters_add_up_and_other_numbers_are_replaced() -> None:
    board = Board(started_at=0.0)
    board.take_metrics({"rollouts/enqueued": 8, "update/kl": 0.1, "val/reward": 0.2}, 1.0)
    board.take_metrics({"rollouts/enqueued": 8, "update/kl": 0.3, "val/reward": 0.4}, 2.0)
    assert board.totals == {"rollouts/enqueued": 16}
    assert board.latest["update/kl"] == 0.3
    assert board.val_rewards == [0.2, 0.4]
    assert board.train_rewards == []


def test_what_went_wrong_is_counted_by_cause_most_frequent_first() -> None:
    values = {
        "rollouts/enqueued": 16,
        "rollouts/succeeded": 10,
        "rollouts/failed": 5,
        "rollouts/failed/ValueError": 1,
        "rollouts/failed/TimeoutError": 4,
        "rollouts/cancelled": 1,
        "rollouts/without_reward": 2,
        "rollouts/without_calls": 3,
        "rollouts/untrainable": 4,
        "samples/dropped/too_long": 2,
        "samples/dropped/no_ids": 0,
    }
    assert counts(values) == (
        "16 enqueued, 10 succeeded, 5 failed (TimeoutError 4, ValueError 1), 1 cancelled, "
        "2 without reward, 3 without model calls, 4 without a sample to learn from, 2 dropped (too_long 2)"
    )


def test_stragglers_and_dropped_groups_are_told() -> None:
    values = {"rollouts/cancelled": 3, "rollouts/stragglers": 2, "groups/dropped": 1}
    assert troubles(values) == ["3 cancelled (stragglers 2)", "1 groups dropped"]


def test_when_all_is_well_nothing_is_said() -> None:
    assert troubles({"rollouts/enqueued": 8, "rollouts/failed": 0, "samples/dropped/too_long": 0}) == []
    assert counts({}) == ""


def test_a_line_keeps_to_its_width_and_leaves_out_the_least_first() -> None:
    values = {
        "train/reward": 0.41234,
        "val/reward": 0.5,
        "rollouts/succeeded": 128,
        "update/kl": 0.00412,
        "update/entropy": 1.234,
        "update/clip_fraction": 0.081,
        "speed/tokens_per_second": 12345.6,
    }
    progress = Progress(phase="learning", iteration=3, total_iterations=60)
    wide = iteration_line(progress, 3, values, "0:12", 120)
    assert wide.startswith(
        " 3/60  reward 0.412  val 0.500  128 ok  kl 0.0041  entropy 1.23  clip 0.08  12k tok/s "
    )
    assert wide.endswith(" 0:12")
    narrow = iteration_line(progress, 3, values, "0:12", 50)
    assert len(narrow) == 50
    assert narrow.startswith(" 3/60  reward 0.412  val 0.500  128 ok ")


def test_missing_numbers_are_left_out() -> None:
    assert iteration_line(Progress(phase="evaluating"), 0, {"val/reward": 0.25}, "0:01", 40).split() == [
        "0",
        "val",
        "0.250",
        "0:01",
    ]


def test_a_phase_says_how_far_it_is_and_what_it_waits_for() -> None:
    assert phase_words(Progress(phase="sampling", done=3, total=8, waiting_for="2 rollouts")) == (
        "sampling 3/8, waiting for 2 rollouts"
    )
    assert phase_words(Progress(phase="saving")) == "saving"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (5.4, "0:05"), (754, "12:34"), (3723, "1:02:03"), (-1, "0:00")]
)
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (1234, "1.2k"), (34000, "34k"), (5.6e6, "5.6M"), (2e9, "2.0G")],
)
def test_counts_are_short(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("value", "text"), [(-1e-9, "kl 0.0000"), (-0.25, "kl -0.2500"), (0.0, "kl 0.0000"), (-0.0, "kl 0.0000")]
)
def test_a_zero_has_no_minus(value: float, text: str) -> None:
    assert written("kl {:.4f}", value) == text


def test_positions_line_up() -> None:
    assert [position(step, 60) for step in (3, 12)] == [" 3/60", "12/60"]
    assert position(4, 0) == "4"


def test_a_sparkline_goes_from_the_least_to_the_greatest() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([2.0, 2.0], 10) == "▄▄"
    assert sparkline([0.0, math.nan, 1.0], 10) == "▁█"
    assert sparkline([], 10) == ""


def test_a_long_sparkline_shows_means() -> None:
    # pairs (0, 2), (4, 6), (8, 10): means 1, 5, 9
    assert sparkline([0, 2, 4, 6, 8, 10], 3) == "▁▅█"
