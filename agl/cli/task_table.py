"""What ``agl run`` says of its tasks: a line each, what went wrong, and a summary."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from agl.evaluation.counts import cause_of, count_rollouts
from agl.launch.tasks import TaskResult
from agl.types import Json

TERMINAL_WIDTH = 80
TASK_WIDTHS = 20, 72
"""The narrowest and the widest column of tasks; it takes what the others leave of the line."""
TRACEBACK_LINES = 15
"""Of the end of a traceback, where the cause is."""
MAX_MESSAGE = 300
"""Characters of an error's message; the traceback has the rest."""
_OTHERS = 54
"""Characters of the columns beside the task, with the longest usual ends."""
_HEAD = ("", "task", "reward", "calls", "tokens", "seconds", "end")
_OURS = ("runners", "agents")
"""Folders through which the way from the runner to the agent goes: nothing that a user looks for."""


def lines_of(results: Sequence[TaskResult], *, width: int = TERMINAL_WIDTH) -> list[str]:
    """Return the whole report; ``width`` is the terminal's."""
    least, most = TASK_WIDTHS
    task_width = max(least, min(width - _OTHERS, most))
    rows = [_row(number, result, task_width) for number, result in enumerate(results, start=1)]
    head = _line(_HEAD, task_width)
    return [head, *rows, *_troubles(results), "", summary(results)]


def _row(number: int, result: TaskResult, task_width: int) -> str:
    rollout = result.rollout
    reward = "-" if rollout.reward is None else f"{rollout.reward:.4g}"
    end: str = rollout.status
    if end == "failed":
        end = cause_of(rollout)
    elif end == "succeeded" and rollout.reward is None:
        end = "no reward"
    task = shortened(rollout.task, task_width)
    seconds = f"{result.seconds:.2f}"
    cells = (str(number), task, reward, str(result.calls), str(result.tokens), seconds, end)
    return _line(cells, task_width)


def _line(cells: Sequence[str], task_width: int) -> str:
    number, task, reward, calls, tokens, seconds, end = cells
    return f"{number:>3} {task:{task_width}} {reward:>6} {calls:>5} {tokens:>7} {seconds:>7}  {end}"


def shortened(task: Json, width: int) -> str:
    """Return a task as one line of printable text."""
    text = task if isinstance(task, str) else json.dumps(task, ensure_ascii=False)
    printable = "".join(sign if sign.isprintable() else " " for sign in text)
    return printable if len(printable) <= width else f"{printable[: width - 3]}..."


def _troubles(results: Sequence[TaskResult]) -> list[str]:
    """The first error of each cause, with the end of its traceback."""
    lines: list[str] = []
    seen: set[str] = set()
    for number, result in enumerate(results, start=1):
        error = result.rollout.error
        if result.rollout.status != "failed" or error is None or error.cause in seen:
            continue
        seen.add(error.cause)
        message = textwrap.shorten(error.message, MAX_MESSAGE, placeholder="...")
        lines += ["", f"task {number}: {error.cause}: {message}".rstrip(": ")]
        if error.cause == "missing_resource":
            lines.append(
                "  a model is given by policy.path=NAME, inference=external or proxy.endpoints; other resources by"
                " resources={...}"
            )
        elif error.traceback:
            lines += [f"  {line}" for line in of_the_agent(error.traceback)[-TRACEBACK_LINES:]]
    return lines


def of_the_agent(traceback: str) -> list[str]:
    """Return the lines of a traceback without the runner's own steps to the agent; all where there are no others."""
    lines = traceback.rstrip().splitlines()
    package = Path(__file__).resolve().parent.parent
    ways = tuple(f'  File "{package / folder}' for folder in _OURS)
    kept: list[str] = []
    ours = False
    for line in lines:
        if line.startswith('  File "'):
            ours = line.startswith(ways)
        elif not line.startswith("    "):
            ours = False
        if not ours:
            kept.append(line)
    return kept if any(line.startswith('  File "') for line in kept) else lines


def summary(results: Sequence[TaskResult]) -> str:
    """Return one line: how many, how they ended, the mean reward, and what it took."""
    rollouts = [result.rollout for result in results]
    counts = count_rollouts(rollouts)
    parts = [f"{counts.enqueued} task{'s' * (counts.enqueued != 1)}: {counts.succeeded} succeeded"]
    if counts.without_reward:
        parts.append(f"{counts.without_reward} of them without reward")
    if counts.failed:
        causes = ", ".join(f"{cause} {count}" for cause, count in counts.failed.most_common())
        parts.append(f"{counts.failed.total()} failed ({causes})")
    if counts.cancelled:
        parts.append(f"{counts.cancelled} cancelled")
    rewards = [r.reward for r in rollouts if r.status == "succeeded" and r.reward is not None]
    if rewards:
        parts.append(f"mean reward {sum(rewards) / len(rewards):.4g}")
    calls, tokens = sum(result.calls for result in results), sum(result.tokens for result in results)
    begins = [r.started_at for r in rollouts if r.started_at is not None]
    ends = [r.finished_at for r in rollouts if r.finished_at is not None]
    seconds = max(ends) - min(begins) if begins and ends else 0.0
    return f"{', '.join(parts)}; {calls} calls, {tokens} tokens, {seconds:.1f} s"
