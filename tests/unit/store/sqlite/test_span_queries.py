"""Spans are listed from indexes, and prefixes mean what they say."""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any

import pytest

from agl.store.sqlite import rollouts, span_queries, spans
from agl.store.sqlite.writer import Transaction
from agl.types import RolloutRequest, Span, SpanQuery

NAMES = ("chat policy", "chat judge", "chat", "cha", "tool a", "\U0010ffff")


def plans(db: sqlite3.Connection, query: SpanQuery) -> str:
    """Return how SQLite would run the statements of a list."""
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    span_queries.spans(db, query)
    db.set_trace_callback(None)
    ours = [one for one in statements if not one.startswith("--")]  # the full-text index has its own
    return str([db.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall() for statement in ours])


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (SpanQuery(rollout_id="ro"), "span_attempt"),
        (SpanQuery(rollout_id="ro", attempt_id="latest"), "span_attempt"),
        (SpanQuery(attempt_id="at"), "span_attempt"),
        (SpanQuery(run_id="r"), "span_run"),
        (SpanQuery(name="chat policy"), "span_name"),
        (SpanQuery(trace_id="t"), "span_id"),
        (SpanQuery(name="n", run_id="r"), "SCAN t VIRTUAL TABLE INDEX"),
        (SpanQuery(name_prefix="n"), "SCAN t VIRTUAL TABLE INDEX"),
        (SpanQuery(attributes={"a": 1}), "SCAN t VIRTUAL TABLE INDEX"),
    ],
)
def test_lists_read_an_index(db: sqlite3.Connection, query: SpanQuery, index: str) -> None:
    spans.add(
        Transaction(db=db, now=1.0, new_id=str, positions=itertools.count(1)),
        [Span(span_id="1", trace_id="t", name="n", start_time_ns=1)],
    )
    assert index in plans(db, query)


@pytest.mark.parametrize(
    "query",
    [
        SpanQuery(attempt_id="at"),
        SpanQuery(rollout_id="ro", attempt_id="latest"),
        SpanQuery(run_id="r"),
        SpanQuery(name="n"),
        SpanQuery(attributes={"a": 1}, order="desc"),
    ],
)
def test_lists_need_no_sorting(db: sqlite3.Connection, query: SpanQuery) -> None:
    assert "TEMP B-TREE" not in plans(db, query)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_filters_combine_and_pages_join(transaction: Transaction, order: Any) -> None:
    records: list[tuple[Span, str]] = []
    for number in range(60):
        run_id = "ab"[number // 3 % 2]
        held = rollouts.start_rollout(transaction, RolloutRequest(task=1, run_id=run_id), "w")
        span = Span(
            span_id=f"{number}",
            trace_id="t",
            name=NAMES[number % len(NAMES)],
            attributes={"number": number % 5, "even": number % 2 == 0},
            start_time_ns=1,
            rollout_id=held.rollout.rollout_id,
            attempt_id=held.attempt.attempt_id,
        )
        spans.add(transaction, [span])
        records.append((span, run_id))
    if order == "desc":
        records.reverse()
    attributes: tuple[dict[str, Any] | None, ...] = (
        None,
        {"number": 3},
        {"number": 2, "even": True},
        {"number": 9},
    )
    for run_id, prefix, name, wanted in itertools.product(
        ("a", None), ("chat", "chat ", "x", "\U0010ffff", None), ("chat", None), attributes
    ):
        expected = [
            span.span_id
            for span, of_run in records
            if (run_id is None or of_run == run_id)
            and (prefix is None or span.name.startswith(prefix))
            and (name is None or span.name == name)
            and (wanted is None or wanted.items() <= span.attributes.items())
        ]
        query = SpanQuery(
            run_id=run_id, name_prefix=prefix, name=name, attributes=wanted, order=order, limit=4
        )
        found: list[str] = []
        while True:
            page = span_queries.spans(transaction.db, query)
            found += [span.span_id for span in page.items]
            if page.next_cursor is None:
                break
            query = query.model_copy(update={"cursor": page.next_cursor})
        assert found == expected, (run_id, prefix, name, wanted)


def test_a_prefix_of_very_many_names_lists_all(transaction: Transaction) -> None:
    made = [
        Span(
            span_id=f"{number}",
            trace_id="t",
            name=f"step {number:03}",
            start_time_ns=1,
            attributes={"odd": number % 2},
        )
        for number in range(300)
    ]
    spans.add(transaction, made)
    for attributes, count in ((None, 300), ({"odd": 1}, 150)):
        page = span_queries.spans(transaction.db, SpanQuery(name_prefix="step ", attributes=attributes))
        assert len(page.items) == count


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("abc", "abd"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("\ud7ff", "\ue000"),
    ],
)
def test_the_end_of_a_prefix_is_the_first_text_behind_it(prefix: str, end: str | None) -> None:
    assert span_queries._prefix_end(prefix) == end


def test_a_span_query_can_ask_for_every_filter_at_once(db: sqlite3.Connection) -> None:
    query = SpanQuery(
        rollout_id="ro",
        attempt_id="at",
        trace_id="t",
        run_id="r",
        name="n",
        name_prefix="n",
        attributes={"a": 1, "b": [1], "c": None},
    )
    items: list[Span] = list(span_queries.spans(db, query).items)
    assert items == []
