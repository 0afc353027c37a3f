"""agl trace: the spans of an attempt as a tree."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from agl.adapters.span_tree import Gap, SpanRow, gaps, span_tree, times_of
from agl.cli.attempts import attempts_of, chosen_attempt, spans_of_attempt
from agl.cli.named_records import record_named
from agl.cli.progress import Progress
from agl.cli.span_facts import error_of, facts_of
from agl.cli.text import (
    counted,
    cut,
    duration,
    fields,
    plain,
    say,
    say_json,
    shortened,
    terminal_width,
    wrapped,
)
from agl.errors import ConfigError
from agl.types import Attempt, Rollout, Span

BAR_FROM = 100
"""Columns from which a line has room for a bar."""
BAR = 24
INDENT = 2
_AT, _TOOK = 8, 8
_ATTRIBUTE = 400
"""Columns of one attribute's value, where all are shown."""


def main(
    wanted: str,
    *,
    attempt: str | None,
    full: bool,
    store_url: str | None,
    run_dir: str | None,
    as_json: bool,
) -> None:
    """Print the tree.

    Raises:
        ConfigError: nobody knows the rollout, or it has no such attempt.
    """
    with Progress(sys.stderr, "reading"):
        rollout, shown, number, spans = asyncio.run(_read(wanted, attempt, store_url, run_dir))
    if as_json:
        say_json(
            {
                "rollout_id": rollout.rollout_id,
                "attempt_id": None if shown is None else shown.attempt_id,
                "spans": [span.model_dump(mode="json") for span in spans],
            }
        )
        return
    say(trace_lines(rollout, shown, spans, num_attempts=number, width=terminal_width(), full=full))


async def _read(
    wanted: str, attempt: str | None, store_url: str | None, run_dir: str | None
) -> tuple[Rollout, Attempt | None, int, list[Span]]:
    async with record_named(wanted, store_url, run_dir, kinds=("rollout", "attempt")) as (store, record):
        if isinstance(record, Attempt):
            if attempt is not None:
                raise ConfigError(f"--attempt {attempt}: {wanted} is an attempt already")
            attempt = record.attempt_id
            record = await store.get_rollout_by_id(record.rollout_id)
        assert isinstance(record, Rollout)
        attempts = await attempts_of(store, record.rollout_id)
        shown = chosen_attempt(record.rollout_id, attempts, attempt)
        spans = [] if shown is None else await spans_of_attempt(store, shown)
        return record, shown, len(attempts), spans


def trace_lines(
    rollout: Rollout,
    attempt: Attempt | None,
    spans: Sequence[Span],
    *,
    num_attempts: int,
    width: int,
    full: bool,
) -> list[str]:
    """Return the tree for people.

    Args:
        rollout: whose it is.
        attempt: whose spans these are, None where there is none yet.
        spans: in any order.
        num_attempts: that the rollout has.
        width: columns.
        full: all attributes and events of every span.
    """
    if attempt is None:
        return [
            *fields([("Rollout", rollout.rollout_id)], width=width),
            "No attempt yet: it waits in the queue",
        ]
    head = fields(
        [
            ("Rollout", rollout.rollout_id),
            ("Attempt", f"{attempt.sequence_id} of {num_attempts}: {attempt.attempt_id}, {attempt.status}"),
        ],
        width=width,
    )
    if not spans:
        return [*head, "No spans: the agent called no model through the proxy, and recorded nothing"]
    rows = span_tree(spans)
    begin, end = times_of(spans)
    pauses = gaps(rows)
    before = _places(rows, pauses)
    bar_width = BAR if width >= BAR_FROM else 0
    lines = [*head, "", _heading(bar_width)]
    for row in rows:
        lines += [_gap_line(gap, begin, bar_width) for gap in before.get(id(row), ())]
        lines += _row_lines(row, begin, end, bar_width=bar_width, width=width)
        if full:
            lines += _detail_lines(row.span, begin, width=width)
    lines += [_gap_line(gap, begin, bar_width) for gap in pauses if gap.before is None]
    return [*lines, "", *wrapped(_summary(rows, begin, end, pauses), width=width)]


def _places(rows: Sequence[SpanRow], pauses: Sequence[Gap]) -> dict[int, list[Gap]]:
    """The rows, by their id, above which a gap is said: its end's, or that of the outermost that began in the gap."""
    ended = {id(gap.before): gap for gap in pauses if gap.before is not None}
    found: dict[int, list[Gap]] = {}
    above: list[SpanRow] = []  # the row's ancestors, the outermost first
    for row in rows:
        del above[row.depth :]
        gap = ended.get(id(row.span))
        if gap is not None:
            begun = [one for one in above if one.span.start_time_ns > gap.begin_ns]
            found.setdefault(id(begun[0] if begun else row), []).append(gap)
        above.append(row)
    return found


def _heading(bar_width: int) -> str:
    bar = f"  {'':{bar_width}}" if bar_width else ""
    return f"{'at':>{_AT}}{'took':>{_TOOK}}{bar}   span"


def _row_lines(row: SpanRow, begin: int, end: int, *, bar_width: int, width: int) -> list[str]:
    span = row.span
    at = duration((span.start_time_ns - begin) / 1e9)
    took = "open" if span.end_time_ns is None else duration((span.end_time_ns - span.start_time_ns) / 1e9)
    failed = span.status.code == "error"
    left = f"{at:>{_AT}}{took:>{_TOOK}}"
    if bar_width:
        left += f"  {_bar(span, begin, end, bar_width):{bar_width}}"
    left += " ! " if failed else " ? " if row.is_orphan else "   "
    indent = " " * min(INDENT * row.depth, max(0, width // 3 - INDENT))
    facts = facts_of(span)
    words = f"{shortened(span.name, 60)}{f'  {facts}' if facts else ''}"
    room = width - len(left) - len(indent)
    lines = [f"{left}{indent}{cut(plain(words), room)}".rstrip()]
    hanging = f"{'':{len(left)}}{indent}  "
    if failed:
        lines.append(f"{hanging}{shortened(error_of(span), width - len(hanging))}")
    if row.is_orphan:
        lines.append(f"{hanging}{shortened('(its parent is not among the spans)', width - len(hanging))}")
    return lines


def _bar(span: Span, begin: int, end: int, width: int) -> str:
    """Where the span lies in the time of the attempt."""
    total = max(1, end - begin)
    first = min(width - 1, int((span.start_time_ns - begin) / total * width))
    last = min(width, round(((span.end_time_ns or span.start_time_ns) - begin) / total * width))
    return f"{'':{first}}{'█' * max(1, last - first)}"


def _gap_line(gap: Gap, begin: int, bar_width: int) -> str:
    at, took = duration((gap.begin_ns - begin) / 1e9), duration(gap.seconds)
    bar = f"  {'':{bar_width}}" if bar_width else ""
    return f"{at:>{_AT}}{took:>{_TOOK}}{bar}   ... nothing recorded"


def _detail_lines(span: Span, begin: int, *, width: int) -> list[str]:
    margin = " " * (_AT + _TOOK + 5)
    lines: list[str] = []
    for name, value in sorted(span.attributes.items()):
        lines += wrapped(f"{plain(name)} = {shortened(value, _ATTRIBUTE)}", width=width, indent=margin)
    for event in span.events:
        at = duration((event.time_ns - begin) / 1e9)
        lines += wrapped(f"event at {at}: {plain(event.name)}", width=width, indent=margin)
        for name, value in event.attributes.items():
            lines += wrapped(f"  {plain(name)} = {plain_value(value)}", width=width, indent=margin)
    return lines


def plain_value(value: Any) -> str:
    """Return an attribute of an event; tracebacks keep their lines."""
    return value if isinstance(value, str) else plain(value)


def _summary(rows: Sequence[SpanRow], begin: int, end: int, pauses: Sequence[Gap]) -> str:
    errors = sum(row.span.status.code == "error" for row in rows)
    orphans = sum(row.is_orphan for row in rows)
    parts = [f"{counted(len(rows), 'span')} in {duration((end - begin) / 1e9)}"]
    if errors:
        parts.append(f"{counted(errors, 'error')} (!)")
    if orphans:
        parts.append(f"{orphans} without their parent (?)")
    if pauses:
        parts.append(f"{duration(sum(gap.seconds for gap in pauses))} in which nothing was recorded")
    return ", ".join(parts)
