"""What ``agl eval`` says: who got what on which tasks, at what price, and what differs from another contestant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agl.cli.text import counted, duration
from agl.evaluation.comparison import Comparison, Flip
from agl.types import Json

SHOWN = 5
"""Tasks that flipped, each way; the others are in the report's file."""
TASK_WIDTH = 58
_LABEL = 12


def report_lines(report: Mapping[str, Any], *, mode: str) -> list[str]:
    """Return the lines on one contestant.

    Args:
        report: as ``EvaluationReport.as_json`` gives it.
        mode: of the tasks.
    """
    counts, tasks = report["rollouts"], report["tasks"]
    each = max((len(task["runs"]) for task in tasks), default=0)
    times = f", {each} times each" if each > 1 else ""
    lines = [
        _line("Evaluated", report["contestant"]),
        _line("Tasks", f"{counted(len(tasks), f'{mode} task')}{times}"),
        _line("Reward", f"{_mean(report['reward'])}  mean over tasks, 95% interval"),
    ]
    for k, value in report["pass_at"].items():
        lines.append(_line(f"pass@{k}", f"{_mean(value)}  reward of {report['threshold']:g} or more"))
        lacking = len(tasks) - value["num_tasks"]
        if lacking:
            have = "has" if lacking == 1 else "have"
            fewer = "no reward" if int(k) == 1 else f"fewer than {k} rewards"
            lines[-1] += f"; {counted(lacking, 'task')} {have} {fewer}"
    lines += [_line(f"  {name}", _mean(value)) for name, value in report["dimensions"].items()]
    lines += _endings(counts)
    return [*lines, *_usage(report)]


def _endings(counts: Mapping[str, Any]) -> list[str]:
    failed = sum(counts["failed"].values())
    line = f"{counts['enqueued']} = {counts['succeeded']} succeeded + {failed} failed + {counts['cancelled']} cancelled"
    lines = [_line("Rollouts", line)]
    if failed:
        ordered = sorted(counts["failed"].items(), key=lambda item: -item[1])
        causes = ", ".join(f"{_plain(cause)} {count}" for cause, count in ordered)
        lines.append(_line("Failed", f"{causes} (not in the mean)"))
    if counts["without_reward"]:
        lines.append(
            _line("No reward", f"{counts['without_reward']} succeeded without one (not in the mean)")
        )
    return lines


def _usage(report: Mapping[str, Any]) -> list[str]:
    usage, lines = report["usage"], list[str]()
    if usage is not None and (usage["calls"] or usage["replayed_calls"]):
        tokens = f"{usage['input_tokens']:,} in + {usage['output_tokens']:,} out, {usage['calls']:,} calls"
        lines += [_line("Tokens", tokens), _line("Cost", _cost(usage))]
    if report["seconds"] is not None:
        each = (
            "" if report["rollout_seconds"] is None else f", {duration(report['rollout_seconds'])} a rollout"
        )
        lines.append(_line("Time", f"{duration(report['seconds'])}{each}"))
    return lines


def _cost(usage: Mapping[str, Any]) -> str:
    unpriced, calls = usage["calls_without_price"], usage["calls"]
    if unpriced == calls:
        return "unknown: no price is set for the model (proxy.prices)"
    further = f" and {unpriced} calls without a price" if unpriced else ""
    return f"${usage['cost_usd']:.4f}{further}"


def comparison_lines(
    comparison: Comparison, first: str, second: str, *, shown_by: tuple[str, str] | None = None
) -> list[str]:
    """Return the lines on the difference of two contestants, named ``first`` and ``second``.

    Args:
        comparison: of them.
        first: a name.
        second: a name.
        shown_by: options by which ``agl show`` finds the rollouts of each; None names the rollouts alone.
    """
    difference = comparison.difference
    test = {"permutation": "paired permutation", "t": "paired t"}[difference.test]
    lines = [
        _line("Difference", f"{difference}"),
        _line("Test", f"{test}, {counted(difference.num_tasks, 'task')}"),
        _line("By task", f"better {comparison.better}, worse {comparison.worse}, equal {comparison.equal}"),
    ]
    if comparison.unpaired:
        lines[-1] += f"; {comparison.unpaired} without a reward on one of the sides"
    for name, flips in ((first, comparison.gained), (second, comparison.lost)):
        if flips:
            lines += ["", f"Passed by {name} alone: {len(flips)}", *_flips(flips, shown_by)]
    return lines


def _flips(flips: Sequence[Flip], shown_by: tuple[str, str] | None) -> list[str]:
    lines: list[str] = []
    for flip in flips[:SHOWN]:
        lines.append(f"  {flip.first:.2f} against {flip.second:.2f}  {_short(flip.task)}")
        rollout_ids = flip.first_rollout_id, flip.second_rollout_id
        if shown_by is None:
            lines += [f"    {rollout_id}" for rollout_id in rollout_ids]
        else:
            sides = zip(rollout_ids, shown_by, strict=True)
            lines += [f"    agl show {rollout_id} {options}".rstrip() for rollout_id, options in sides]
    if len(flips) > SHOWN:
        lines.append(f"  ... and {len(flips) - SHOWN} more")
    return lines


def places(folder: Path, report_file: str) -> list[str]:
    """Return where all of it is."""
    return ["", _line("Run folder", f"{folder} ({report_file}: all rollouts by task)")]


def _line(label: str, text: object) -> str:
    return f"{label:{_LABEL}}{text}"


def _mean(value: Mapping[str, Any]) -> str:
    if value["mean"] is None:
        return "no rewards"
    if value["low"] is None:
        return f"{value['mean']:.3f}"
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def _short(task: Json) -> str:
    text = _plain(task if isinstance(task, str) else json.dumps(task, ensure_ascii=False))
    return text if len(text) <= TASK_WIDTH else f"{text[: TASK_WIDTH - 3]}..."


def _plain(text: str) -> str:
    """The text with nothing in it that a terminal would obey."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
