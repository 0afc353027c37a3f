"""A rollout: what was asked, its attempts, the conversation, its rewards, what went wrong, and what it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agl.adapters.exchanges import exchanges_from_spans
from agl.adapters.span_tree import span_tree
from agl.cli.attempts import attempts_of, chosen_attempt, spans_of_attempt
from agl.cli.lists.rollouts import end_of
from agl.cli.show.calls import call_lines, calls_as_json
from agl.cli.span_facts import reward_dimensions, shown_value
from agl.cli.task_table import of_the_agent
from agl.cli.text import (
    Column,
    counted,
    duration,
    fields,
    moment,
    number,
    plain,
    plain_lines,
    shortened,
    table,
    wrapped,
)
from agl.store.base import LightningStore
from agl.types import Attempt, ErrorInfo, Json, Rollout, Span
from agl.types import attributes as key

ATTEMPTS = (
    Column(title="", align="right"),
    Column(title="attempt", is_id=True),
    Column(title="status"),
    Column(title="began", rank=1),
    Column(title="took", align="right"),
    Column(title="worker", rank=2),
    Column(title="error", least=10, rank=3),
)
TRACEBACK_LINES = 15
OUTPUT_LINES = 5
TASK_LINES = 12
"""Shown of each, unless all of it is asked for."""
SPAN_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """A rollout as a store has it.

    Args:
        rollout: the rollout.
        attempts: all of them, the first one first.
        shown: the attempt whose spans these are, None where there is none yet.
        spans: of that attempt.
    """

    rollout: Rollout
    attempts: Sequence[Attempt]
    shown: Attempt | None
    spans: Sequence[Span]


async def rollout_record(store: LightningStore, rollout: Rollout, attempt: str | None) -> RolloutRecord:
    """Read the rollout's attempts, and the spans of one of them: of the id or number that is given, else the newest.

    Raises:
        ConfigError: it has no such attempt.
    """
    attempts = await attempts_of(store, rollout.rollout_id)
    shown = chosen_attempt(rollout.rollout_id, attempts, attempt)
    spans = [] if shown is None else await spans_of_attempt(store, shown)
    return RolloutRecord(rollout=rollout, attempts=attempts, shown=shown, spans=spans)


def rollout_lines(record: RolloutRecord, *, place: str, width: int, full: bool) -> list[str]:
    """Return the record for people.

    Args:
        record: what is shown.
        place: options that name the records, for the commands that go on from here; may be empty.
        width: columns.
        full: long texts to their end.
    """
    rollout, exchanges = record.rollout, exchanges_from_spans(record.spans)
    lines = _head(rollout, width=width, full=full)
    lines += _titled("Attempts", _attempt_lines(record.attempts, width=width))
    lines += _titled("Rewards", _reward_lines(record.spans, width=width))
    which = (
        "" if len(record.attempts) < 2 or record.shown is None else f" of attempt {record.shown.sequence_id}"
    )
    lines += _titled(f"Transcript{which}", call_lines(exchanges, width=width, full=full))
    shown = record.shown
    error = rollout.error if shown is None or shown is record.attempts[-1] else shown.error
    lines += _error_lines(error or (None if shown is None else shown.error), width=width, full=full)
    lines += _titled(f"Output{which}", _output_lines(record.spans, width=width, full=full))
    lines += _titled("Spans", _span_lines(record.spans, width=width))
    return [*lines, "", *_next(record, place)]


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *lines] if lines else []


def _head(rollout: Rollout, *, width: int, full: bool) -> list[str]:
    limit = rollout.config.max_attempts
    status = end_of(rollout) if rollout.status != "failed" else f"failed: {end_of(rollout)}"
    if rollout.status == "succeeded" and rollout.reward is None:
        status = "succeeded, no reward"
    tries = f"{counted(rollout.num_attempts, 'attempt')} of at most {limit}"
    times = f"created {moment(rollout.created_at)}"
    if rollout.started_at is not None:
        times += f"; waited {duration(rollout.started_at - rollout.created_at)}"
        if rollout.finished_at is not None:
            times += f", took {duration(rollout.finished_at - rollout.started_at)}"
    dimensions = ", ".join(f"{name} {number(value)}" for name, value in rollout.reward_dimensions.items())
    task = _first_lines(fields([("Task", _task_text(rollout.task))], width=width), TASK_LINES, full=full)
    return [
        *fields([("Rollout", rollout.rollout_id), ("Run", rollout.run_id)], width=width),
        *fields([("Status", f"{status}; {tries}")], width=width),
        *fields(
            [("Reward", f"{number(rollout.reward)}{f' ({dimensions})' if dimensions else ''}")], width=width
        ),
        *task,
        *fields(
            [
                ("Mode", rollout.mode),
                ("Group", rollout.group_id),
                ("Resources", rollout.resources_id),
                ("Times", times),
                ("Metadata", rollout.metadata or None),
            ],
            width=width,
        ),
    ]


def _task_text(task: Json) -> str:
    """A task as it reads best: the fields of an object one below the other."""
    if not isinstance(task, dict):
        return task if isinstance(task, str) else plain(task)
    items = cast("dict[str, Json]", task).items()
    lines = [f"{name}: {value if isinstance(value, str) else plain(value)}" for name, value in items]
    return "\n".join(lines) or "{}"


def _first_lines(lines: Sequence[str], most: int, *, full: bool) -> list[str]:
    if full or len(lines) <= most + 1:
        return list(lines)
    return [*lines[:most], f"... {len(lines) - most} more lines (--full shows them)"]


def _attempt_lines(attempts: Sequence[Attempt], *, width: int) -> list[str]:
    rows: list[list[object]] = []
    for attempt in attempts:
        took = None if attempt.finished_at is None else duration(attempt.finished_at - attempt.started_at)
        error = None
        if attempt.error is not None:
            error = f"{attempt.error.cause}: {attempt.error.message}".rstrip(": ")
        rows.append(
            [
                attempt.sequence_id,
                attempt.attempt_id,
                attempt.status,
                moment(attempt.started_at),
                took,
                attempt.worker_id,
                error,
            ]
        )
    return table(ATTEMPTS, rows, width=width) if rows else []


def rewards_of(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return every reward that was given to the attempt, with its dimensions and whose it is."""
    found: list[dict[str, Any]] = []
    for span in spans:
        if span.name not in (key.REWARD_SPAN, key.REGRADE_SPAN):
            continue
        by = "emitted on the way"
        if span.name == key.REGRADE_SPAN:
            by = f"given later by {span.attributes.get(key.REGRADE_GRADER, 'a grader')}"
        elif span.attributes.get(key.REWARD_RETURNED):
            by = "the verdict of the agent or its grader"
        value = span.attributes.get(key.REWARD_VALUE)
        found.append(
            {"value": value, "dimensions": reward_dimensions(span), "by": by, "time_ns": span.start_time_ns}
        )
    return found


def _reward_lines(spans: Sequence[Span], *, width: int) -> list[str]:
    lines: list[str] = []
    for reward in rewards_of(spans):
        dimensions = ", ".join(f"{name} {shown_value(value)}" for name, value in reward["dimensions"].items())
        text = f"{shown_value(reward['value'])}  {f'({dimensions})  ' if dimensions else ''}{reward['by']}"
        lines += wrapped(text, width=width, indent="  ")
    return lines


def _error_lines(error: ErrorInfo | None, *, width: int, full: bool) -> list[str]:
    if error is None:
        return []
    message = f"{error.cause}: {error.message}".rstrip(": ")
    lines = ["", *fields([("Error", message)], width=width)]
    if error.traceback:
        kept = of_the_agent(error.traceback)
        for line in kept if full else kept[-TRACEBACK_LINES:]:
            lines += wrapped(line, width=width, indent="  ")
    return lines


def _output_lines(spans: Sequence[Span], *, width: int, full: bool) -> list[str]:
    """The end of what the attempt wrote, each stream by itself."""
    lines: list[str] = []
    for span in spans:
        if span.name != key.OUTPUT_SPAN:
            continue
        written = plain_lines(str(span.attributes.get(key.OUTPUT_TEXT, "")).rstrip())
        shown = written if full else written[-OUTPUT_LINES:]
        size = counted(int(span.attributes.get(key.OUTPUT_BYTES, 0)), "byte")
        which = "" if len(shown) == len(written) else f", the last {len(shown)} of {len(written)} lines"
        lines.append(f"  {plain(span.attributes.get(key.OUTPUT_STREAM, '?'))} ({size}{which})")
        for line in shown:
            lines += wrapped(line, width=width, indent="    ")
    return lines


def span_counts(spans: Sequence[Span]) -> dict[str, Any]:
    """Return how many spans there are: all, by name, with an error, without their parent."""
    return {
        "total": len(spans),
        "by_name": dict(Counter(span.name for span in spans).most_common()),
        "errors": sum(span.status.code == "error" for span in spans),
        "orphans": sum(row.is_orphan for row in span_tree(spans)),
    }


def _span_lines(spans: Sequence[Span], *, width: int) -> list[str]:
    counts: Mapping[str, Any] = span_counts(spans)
    if not counts["total"]:
        return []
    names = [f"{shortened(name, 40)} {count}" for name, count in list(counts["by_name"].items())[:SPAN_NAMES]]
    further = len(counts["by_name"]) - len(names)
    names += [f"{further} other names"] if further else []
    words = f"{counts['total']:,}: {', '.join(names)}"
    words += f"; {counted(counts['errors'], 'error')}" if counts["errors"] else ""
    words += f"; {counts['orphans']} without their parent" if counts["orphans"] else ""
    return wrapped(words, width=width, indent="  ")


def _next(record: RolloutRecord, place: str) -> list[str]:
    """The commands that go on from here; not wrapped, as they are to be copied."""
    behind = f"{record.rollout.rollout_id}{f' {place}' if place else ''}"
    wanted = [("trace", "its spans"), ("logs", "all that it wrote"), ("replay", "the same task once more")]
    return [f"agl {command} {behind}  # {words}" for command, words in wanted]


def rollout_as_json(record: RolloutRecord) -> dict[str, Any]:
    """Return the record as plain values."""
    exchanges = exchanges_from_spans(record.spans)
    return {
        "kind": "rollout",
        "rollout": record.rollout.model_dump(mode="json"),
        "attempts": [attempt.model_dump(mode="json") for attempt in record.attempts],
        "shown_attempt_id": None if record.shown is None else record.shown.attempt_id,
        "calls": calls_as_json(exchanges),
        "rewards": rewards_of(record.spans),
        "output": [
            {
                "stream": span.attributes.get(key.OUTPUT_STREAM),
                "bytes": span.attributes.get(key.OUTPUT_BYTES),
                "text": span.attributes.get(key.OUTPUT_TEXT),
            }
            for span in record.spans
            if span.name == key.OUTPUT_SPAN
        ],
        "spans": span_counts(record.spans),
    }
