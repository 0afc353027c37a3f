"""Spans of one attempt -> the tree that they form, as rows in the order in which they began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agl.types import Span
from agl.types.attributes import ROLLOUT_SPAN

GAP_FRACTION = 0.05
"""Of an attempt's time: a pause that is worth a line."""
GAP_SECONDS = 0.1
"""And no pause shorter than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRow:
    """A span in its place in the tree.

    Args:
        span: the span.
        depth: 0 at the root.
        is_orphan: it names a parent that is not among the spans; it stands at the root.
        is_leaf: no span names it as its parent.
    """

    span: Span
    depth: int
    is_orphan: bool
    is_leaf: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which no leaf of the tree was open: nothing says what went on.

    Args:
        begin_ns: Unix nanoseconds.
        end_ns: likewise.
        before: the span that ended it, None at the end of the attempt.
    """

    begin_ns: int
    end_ns: int
    before: Span | None

    @property
    def seconds(self) -> float:
        """Return how long it lasted."""
        return (self.end_ns - self.begin_ns) / 1e9


def span_tree(spans: Sequence[Span]) -> list[SpanRow]:
    """Return every span once: parents before their children, siblings in the order in which they began.

    What names no parent (a call that the proxy recorded for an agent without a trace of its own) stands below the
    attempt's own span, where there is exactly one. A span whose parent is missing stands at the root as an orphan; so
    does the first of a circle of parents.
    """
    ordered = sorted(spans, key=lambda span: (span.start_time_ns, span.sequence_id or 0))
    known = {_name(span) for span in spans}
    children: dict[tuple[str, str], list[Span]] = {}
    roots: list[Span] = []
    attempts = [span for span in ordered if span.name == ROLLOUT_SPAN and span.parent_id is None]
    for span in ordered:
        parent = (span.trace_id, span.parent_id or "")
        if span.parent_id is None and len(attempts) == 1 and span is not attempts[0]:
            children.setdefault(_name(attempts[0]), []).append(span)
        elif span.parent_id is not None and parent in known:
            children.setdefault(parent, []).append(span)
        else:
            roots.append(span)
    rows: list[SpanRow] = []
    seen: set[tuple[str, str]] = set()
    for span in [*roots, *ordered]:  # behind the roots come circles, which no root leads to
        if _name(span) not in seen:
            rows += _rows_below(span, children, seen)
    return rows


def _name(span: Span) -> tuple[str, str]:
    return span.trace_id, span.span_id


def _rows_below(
    root: Span, children: dict[tuple[str, str], list[Span]], seen: set[tuple[str, str]]
) -> list[SpanRow]:
    """A root and all below it; without recursion, as a trace may be thousands of spans deep."""
    rows: list[SpanRow] = []
    left = [(root, 0)]
    while left:
        span, depth = left.pop()
        if _name(span) in seen:
            continue
        seen.add(_name(span))
        below = children.get(_name(span), ())
        is_orphan = depth == 0 and span.parent_id is not None
        rows.append(SpanRow(span=span, depth=depth, is_orphan=is_orphan, is_leaf=not below))
        left += [(child, depth + 1) for child in reversed(below)]
    return rows


def times_of(spans: Iterable[Span]) -> tuple[int, int]:
    """Return when the first of the spans began and the last ended, Unix nanoseconds; an open one ends as it begins."""
    times = [(span.start_time_ns, span.end_time_ns or span.start_time_ns) for span in spans]
    return min((begin for begin, _ in times), default=0), max((end for _, end in times), default=0)


def gaps(rows: Sequence[SpanRow]) -> list[Gap]:
    """Return the pauses between the leaves, from the first beginning to the last end of all spans."""
    begin, end = times_of(row.span for row in rows)
    least = max(GAP_SECONDS * 1e9, GAP_FRACTION * (end - begin))
    leaves = sorted((row.span for row in rows if row.is_leaf), key=lambda span: span.start_time_ns)
    found: list[Gap] = []
    reached = begin
    for span in leaves:
        if span.start_time_ns - reached >= least:
            found.append(Gap(begin_ns=reached, end_ns=span.start_time_ns, before=span))
        reached = max(reached, span.end_time_ns or span.start_time_ns)
    if end - reached >= least:
        found.append(Gap(begin_ns=reached, end_ns=end, before=None))
    return found
