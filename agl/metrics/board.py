"""Board: what is known of a run at a moment, and how its numbers read; no drawing, no clock of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agl.metrics.base import Progress

FAILED = "rollouts/failed/"
DROPPED = "samples/dropped/"
_COUNTED = ("rollouts/", "samples/", "groups/")
_RECENT_ITERATIONS = 10
_MINUS_ZERO = re.compile(r"-(0(?:\.0*)?)$")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Board:
    """The state of a run as its reports tell it. Times are seconds of one clock, whichever.

    Args:
        started_at: when the run began.
    """

    started_at: float
    current: Progress = field(default_factory=lambda: Progress(phase="starting"))
    phase_since: float = 0.0
    latest: dict[str, float] = field(default_factory=dict[str, float])
    """The newest value of every metric."""
    totals: dict[str, float] = field(default_factory=dict[str, float])
    """Sums of the counters since the run (or its resumption) began."""
    train_rewards: list[float] = field(default_factory=list[float])
    val_rewards: list[float] = field(default_factory=list[float])
    _durations: list[float] = field(default_factory=list[float])
    _iteration_since: float | None = None

    def take_progress(self, progress: Progress, now: float) -> None:
        """Note the run's position."""
        if (progress.phase, progress.iteration) != (self.current.phase, self.current.iteration):
            self.phase_since = now
        if progress.iteration > self.current.iteration:
            self._iteration_since = now
        self.current = progress

    def take_metrics(self, values: Mapping[str, float], now: float) -> None:
        """Note the numbers of an iteration."""
        self.latest.update(values)
        for name, value in values.items():
            if name.startswith(_COUNTED):
                self.totals[name] = self.totals.get(name, 0.0) + value
        if "train/reward" in values:
            self.train_rewards.append(values["train/reward"])
            since = self.started_at if self._iteration_since is None else self._iteration_since
            self._durations.append(values.get("time/iteration_seconds", now - since))
        if "val/reward" in values:
            self.val_rewards.append(values["val/reward"])

    def elapsed_seconds(self, now: float) -> float:
        """Return the time since the run began."""
        return now - self.started_at

    def remaining_seconds(self, now: float) -> float | None:
        """Return an estimate from the latest iterations; None before the first has ended."""
        if not self._durations or not self.current.total_iterations:
            return None
        recent = self._durations[-_RECENT_ITERATIONS:]
        mean = sum(recent) / len(recent)
        left = self.current.total_iterations - self.current.iteration + 1
        under_way = now - self._iteration_since if self._iteration_since is not None else 0.0
        return max(0.0, left * mean - min(under_way, mean))


def causes(values: Mapping[str, float], prefix: str) -> str:
    """Return ``TimeoutError 4, ValueError 2`` of the counters under ``prefix``, most frequent first."""
    found = {
        name.removeprefix(prefix): count
        for name, count in values.items()
        if name.startswith(prefix) and count
    }
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{cause} {count:.0f}" for cause, count in ranked)


def dropped(values: Mapping[str, float]) -> float:
    """Return how many samples were dropped, for whatever cause."""
    return sum(count for name, count in values.items() if name.startswith(DROPPED))


def troubles(values: Mapping[str, float]) -> list[str]:
    """Return what went wrong with rollouts and samples, in words; empty when nothing did."""
    counted = [
        ("rollouts/failed", "failed", causes(values, FAILED)),
        ("rollouts/cancelled", "cancelled", _stragglers(values)),
        ("rollouts/without_reward", "without reward", ""),
        ("rollouts/without_calls", "without model calls", ""),
        ("rollouts/untrainable", "without a sample to learn from", ""),
    ]
    found = [
        f"{values[name]:.0f} {words}{f' ({which})' if which else ''}"
        for name, words, which in counted
        if values.get(name)
    ]
    if values.get("groups/dropped"):
        found.append(f"{values['groups/dropped']:.0f} groups dropped")
    if dropped(values):
        found.append(f"{dropped(values):.0f} dropped ({causes(values, DROPPED)})")
    return found


def _stragglers(values: Mapping[str, float]) -> str:
    number = values.get("rollouts/stragglers", 0)
    return f"stragglers {number:.0f}" if number else ""


def counts(values: Mapping[str, float]) -> str:
    """Return ``128 enqueued, 126 succeeded, 2 failed (TimeoutError 2)``; empty when no rollouts were counted."""
    if "rollouts/enqueued" not in values:
        return ""
    parts = [
        f"{values['rollouts/enqueued']:.0f} enqueued",
        f"{values.get('rollouts/succeeded', 0):.0f} succeeded",
    ]
    return ", ".join([*parts, *troubles(values)])


def iteration_line(progress: Progress, step: int, values: Mapping[str, float], times: str, width: int) -> str:
    """Return the numbers of one iteration as one line; what matters least is left out where the width is short.

    Args:
        progress: for the number of iterations.
        step: the iteration.
        values: its metrics, any of which may be missing.
        times: elapsed and remaining, at the end of the line.
        width: columns.
    """
    head = f"{position(step, progress.total_iterations)} "
    wanted = [
        ("train/reward", "reward {:.3f}"),
        ("val/reward", "val {:.3f}"),
        ("val/reward_greedy", "greedy {:.3f}"),
        ("search/best_reward", "best {:.3f}"),
        ("search/candidates", "{:.0f} prompts"),
        ("rollouts/succeeded", "{:.0f} ok"),
        ("update/kl", "kl {:.4f}"),
        ("update/entropy", "entropy {:.2f}"),
        ("update/clip_fraction", "clip {:.2f}"),
        ("speed/tokens_per_second", "{} tok/s"),
        ("groups/zero_variance", "{:.0f} flat groups"),
    ]
    room = width - len(head) - len(times) - 3
    parts: list[str] = []
    for name, form in wanted:
        if name not in values:
            continue
        text = written(form, values[name])
        if len("  ".join([*parts, text])) <= room:
            parts.append(text)
    return f"{head} {'  '.join(parts)}".ljust(width - len(times) - 1) + f" {times}"


def written(form: str, value: float) -> str:
    """Return the number in a form such as ``kl {:.4f}``, without a minus before a zero; ``{}`` is a short count."""
    text = form.format(short(value) if "{}" in form else value)
    return _MINUS_ZERO.sub(r"\1", text)


def phase_words(progress: Progress) -> str:
    """Return ``sampling 64/128, waiting for 2 rollouts``."""
    words = progress.phase
    if progress.total:
        words += f" {progress.done}/{progress.total}"
    elif progress.done:
        words += f" {progress.done}"
    return f"{words}, waiting for {progress.waiting_for}" if progress.waiting_for else words


def position(step: int, total: int) -> str:
    """Return `` 3/60``, as wide for every step of the run."""
    return f"{step:>{len(str(total))}}/{total}" if total else str(step)


def duration(seconds: float) -> str:
    """Return ``0:05``, ``12:34`` or ``1:02:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def short(number: float) -> str:
    """Return a count in at most five characters: ``950``, ``1.2k``, ``34k``, ``5.6M``."""
    if not math.isfinite(number):
        return str(number)
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if abs(number) < limit:
            scaled = number / divisor
            return f"{scaled:.1f}{unit}" if unit and abs(scaled) < 10 else f"{scaled:.0f}{unit}"
    return f"{number / 1e9:.1f}G"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the course of the values as bars between their least and greatest; means where there are more than fit."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite or width < 1:
        return ""
    if len(finite) > width:
        edges = [round(index * len(finite) / width) for index in range(width + 1)]
        finite = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(finite), max(finite)
    if high == low:
        return _BARS[3] * len(finite)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in finite)
