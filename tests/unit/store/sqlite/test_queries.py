"""The lists use indexes, and prefixes mean what they say."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from agl.store.sqlite import queries
from agl.types import AttemptQuery, RolloutQuery, Span, SpanQuery
from agl.types.query import ListQuery


def plans(db: sqlite3.Connection, list_page: Any, query: ListQuery) -> str:
    """Return how SQLite would run the statements of a list."""
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    list_page(db, query)
    db.set_trace_callback(None)
    return str([db.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall() for statement in statements])


@pytest.mark.parametrize(
    ("list_page", "query", "index"),
    [
        (queries.rollouts, RolloutQuery(), "rollout_created"),
        (queries.rollouts, RolloutQuery(sort_by="reward", order="desc"), "rollout_reward"),
        (queries.rollouts, RolloutQuery(sort_by="finished_at"), "rollout_finished"),
        (queries.rollouts, RolloutQuery(sort_by="started_at"), "rollout_started"),
        (queries.rollouts, RolloutQuery(run_id="r", status=("pending",)), "rollout_run"),
        (queries.attempts, AttemptQuery(worker_id="w"), "attempt_worker"),
        (queries.spans, SpanQuery(rollout_id="ro"), "span_attempt"),
        (queries.spans, SpanQuery(rollout_id="ro", attempt_id="latest"), "span_attempt"),
        (queries.spans, SpanQuery(attempt_id="at"), "span_attempt"),
        (queries.spans, SpanQuery(run_id="r"), "span_run"),
        (queries.spans, SpanQuery(name="chat policy"), "span_name"),
        (queries.spans, SpanQuery(trace_id="t"), "span_id"),
    ],
)
def test_lists_read_an_index(db: sqlite3.Connection, list_page: Any, query: ListQuery, index: str) -> None:
    assert index in plans(db, list_page, query)


@pytest.mark.parametrize(
    "query", [SpanQuery(attempt_id="at"), SpanQuery(rollout_id="ro", attempt_id="latest")]
)
def test_the_spans_of_an_attempt_need_no_sorting(db: sqlite3.Connection, query: SpanQuery) -> None:
    assert "TEMP B-TREE" not in plans(db, queries.spans, query)


def test_a_page_reads_one_row_more_than_it_shows(db: sqlite3.Connection) -> None:
    page = queries.spans(db, SpanQuery(limit=1))
    assert page.items == []
    assert page.next_cursor is None


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
    assert queries._prefix_end(prefix) == end


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
    items: list[Span] = list(queries.spans(db, query).items)
    assert items == []
