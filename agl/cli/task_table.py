"""What ``agl run`` says of its tasks: a line each, what went wrong, and a summary."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from agl.evaluation.counts import cause_of, count_rollouts
from agl.launch.tasks import TaskResult
from agl.types import Json

TASK_WIDTH = 44
TRACEBACK_LINES = 15
"""Of the end of a traceback, where the cause is."""
_HEAD = f"{'':>4} {'task':{TASK_WIDTH}} {'reward':>8} {'status':>10} {'calls':>6} {'tokens':>8} {'seconds':>8}  cause"


def lines_of(results: Sequence[TaskResult]) -> list[str]:
    """Return the whole report."""
    rows = [_row(number, result) for number, result in enumerate(results, start=1)]
    return [_HEAD, *rows, *_troubles(results), "", summary(results)]


def _row(number: int, result: TaskResult) -> str:
    rollout = result.rollout
    reward = "-" if rollout.reward is None else f"{rollout.reward:.4g}"
    cause = cause_of(rollout) if rollout.status == "failed" else ""
    if rollout.status == "succeeded" and rollout.reward is None:
        cause = "no reward"
    return (
        f"{number:>4} {_short(rollout.task):{TASK_WIDTH}} {reward:>8} {rollout.status:>10} {result.calls:>6}"
        f" {result.tokens:>8} {result.seconds:>8.2f}  {cause}"
    ).rstrip()


def _short(task: Json) -> str:
    text = task if isinstance(task, str) else json.dumps(task, ensure_ascii=False)
    printable = "".join(sign if sign.isprintable() else " " for sign in text)
    return (
        textwrap.shorten(printable, TASK_WIDTH, placeholder="...")
        if " " in printable
        else printable[:TASK_WIDTH]
    )


def _troubles(results: Sequence[TaskResult]) -> list[str]:
    """The first error of each cause, with the end of its traceback."""
    lines: list[str] = []
    seen: set[str] = set()
    for number, result in enumerate(results, start=1):
        error = result.rollout.error
        if result.rollout.status != "failed" or error is None or error.cause in seen:
            continue
        seen.add(error.cause)
        lines += ["", f"task {number}: {error.cause}: {error.message}".rstrip(": ")]
        if error.cause == "missing_resource":
            lines.append(
                "  a model is given by policy.path=NAME, inference=external or proxy.endpoints; other resources by"
                " resources={...}"
            )
        elif error.traceback:
            lines += [f"  {line}" for line in error.traceback.rstrip().splitlines()[-TRACEBACK_LINES:]]
    return lines


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
