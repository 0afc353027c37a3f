"""The tree that spans form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agl.adapters.span_tree import gaps, span_tree, times_of
from agl.types import Span


def span(number: int, *, parent: int | None = None, begin: float = 0.0, end: float | None = 1.0) -> Span:
    return Span(
        span_id=str(number),
        trace_id="t",
        parent_id=None if parent is None else str(parent),
        name=f"s{number}",
        start_time_ns=int(begin * 1e9),
        end_time_ns=None if end is None else int(end * 1e9),
    )


def shape(spans: list[Span]) -> list[tuple[str, int, bool]]:
    return [(row.span.span_id, row.depth, row.is_orphan) for row in span_tree(spans)]


def test_children_stand_below_their_parents_in_the_order_in_which_they_began() -> None:
    spans = [span(3, parent=1, begin=2), span(1), span(2, parent=1, begin=1), span(4, parent=2, begin=1.5)]
    assert shape(spans) == [("1", 0, False), ("2", 1, False), ("4", 2, False), ("3", 1, False)]
    assert [row.is_leaf for row in span_tree(spans)] == [False, False, True, True]


def test_spans_whose_parent_is_missing_stand_at_the_root_and_are_marked() -> None:
    spans = [span(2, parent=9, begin=1), span(3, parent=2, begin=2), span(1)]
    assert shape(spans) == [("1", 0, False), ("2", 0, True), ("3", 1, False)]


def test_what_names_no_parent_stands_below_the_attempts_own_span() -> None:
    root = span(1, end=9).model_copy(update={"name": "agl.rollout"})
    call = span(2, begin=1).model_copy(update={"trace_id": "u"})
    orphan = span(3, parent=9, begin=2)
    assert shape([call, root, orphan]) == [("1", 0, False), ("2", 1, False), ("3", 0, True)]
    second = root.model_copy(update={"span_id": "4"})
    assert shape([root, call, second]) == [("1", 0, False), ("4", 0, False), ("2", 0, False)]


def test_a_circle_of_parents_is_shown_once() -> None:
    spans = [span(1, parent=2), span(2, parent=1, begin=1), span(3, parent=3, begin=2)]
    assert shape(spans) == [("1", 0, True), ("2", 1, False), ("3", 0, True)]


def test_a_parent_is_one_of_the_same_trace() -> None:
    other = span(1).model_copy(update={"trace_id": "u"})
    assert shape([other, span(2, parent=1, begin=1)]) == [("1", 0, False), ("2", 0, True)]


@given(st.lists(st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 10))), max_size=12))
def test_every_span_is_shown_exactly_once(links: list[tuple[int, int | None]]) -> None:
    spans = [span(number, parent=parent) for number, (_, parent) in enumerate(links)]
    rows = span_tree(spans)
    assert sorted(int(row.span.span_id) for row in rows) == list(range(len(links)))


def test_a_deep_trace_is_no_recursion() -> None:
    deep = [span(number, parent=number - 1 if number else None, begin=number) for number in range(5000)]
    assert span_tree(deep)[-1].depth == 4999


def test_gaps_are_the_times_in_which_no_leaf_was_open() -> None:
    rows = span_tree(
        [
            span(1, begin=0, end=20),
            span(2, parent=1, begin=1, end=5),
            span(3, parent=1, begin=4, end=6),
            span(4, parent=1, begin=10, end=None),
        ]
    )
    assert times_of(row.span for row in rows) == (0, 20 * 10**9)
    assert [(gap.begin_ns // 10**9, gap.end_ns // 10**9) for gap in gaps(rows)] == [(0, 1), (6, 10), (10, 20)]
    assert [gap.before.span_id if gap.before else None for gap in gaps(rows)] == ["2", "4", None]
    assert [gap.seconds for gap in gaps(rows)] == [1.0, 4.0, 10.0]


def test_short_pauses_and_no_spans_are_no_gaps() -> None:
    assert gaps(span_tree([span(1, begin=0, end=0.05), span(2, begin=0.1, end=0.2)])) == []
    assert gaps([]) == []
