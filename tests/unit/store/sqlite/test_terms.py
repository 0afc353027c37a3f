"""The index of terms finds every span that a filter means; what it finds too many of is compared."""

from __future__ import annotations

import enum
import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.store.packed import MARK
from agl.store.sqlite import span_queries, spans, terms
from agl.store.sqlite.connection import open_database
from agl.store.sqlite.writer import Transaction
from agl.types import Span, SpanQuery
from agl.types.packing import packed_ids

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
)
JSON = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text("ab", max_size=2), one)
)


class Color(enum.StrEnum):
    """A text of another type."""

    RED = "red"


def add(transaction: Transaction, number: int, attributes: dict[str, Any], name: str = "n") -> None:
    span = Span(span_id=f"{number}", trace_id="t", name=name, attributes=attributes, start_time_ns=1)
    spans.add(transaction, [span])


def found(db: sqlite3.Connection, **attributes: Any) -> list[str]:
    return [span.span_id for span in span_queries.spans(db, SpanQuery(attributes=attributes)).items]


@pytest.mark.parametrize(
    ("value", "equal"),
    [
        (1, 1.0),
        (0.0, -0.0),
        (2**53, float(2**53)),
        ("x" * 2000, "x" * 2000),
        (f"a{MARK}b", f"a{MARK}b"),
        (["a", "b"], ["a", "b"]),
        (["a" * 2000], ["a" * 2000]),
        ([1, [2]], [1.0, [2]]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([], []),
        (Color.RED, "red"),
        ([Color.RED], ["red"]),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (("a",), ["a"]),
        (float("nan"), None),
        (None, None),
    ],
)
def test_equal_values_are_found(transaction: Transaction, value: Any, equal: Any) -> None:
    add(transaction, 1, {"key": value})
    assert found(transaction.db, key=equal) == ["1"]


@pytest.mark.parametrize(
    ("value", "other"),
    [(1, True), (0, False), (1, "1"), (None, "None"), (True, "True"), (["a"], "a"), ([], {}), ("", None)],
)
def test_unequal_values_are_not_found(transaction: Transaction, value: Any, other: Any) -> None:
    add(transaction, 1, {"key": value})
    assert found(transaction.db, key=other) == []
    assert found(transaction.db, another=value) == []


@given(st.lists(st.dictionaries(st.sampled_from(("a", "b")), JSON), max_size=8), st.data())
def test_the_index_finds_what_a_comparison_of_all_spans_finds(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    db = open_database(":memory:", now=1.0)
    transaction = Transaction(db=db, now=1.0, new_id=str, positions=iter(range(1, 100)))  # pyright: ignore[reportArgumentType]
    for number, attributes in enumerate(rows):
        add(transaction, number, attributes)
    value = data.draw(st.sampled_from([one for row in rows for one in row.values()] or [None]) | JSON)
    expected = [
        str(number)
        for number, row in enumerate(rows)
        if "a" in row and row["a"] == value and isinstance(row["a"], bool) == isinstance(value, bool)
    ]
    assert found(db, a=value) == expected  # nested values are compared as Python compares them
    db.close()


def test_token_ids_are_found(transaction: Transaction) -> None:
    for number in (1, 2):
        add(transaction, number, {"agl.response_token_ids": packed_ids([number, 7])})
    assert found(transaction.db, **{"agl.response_token_ids": packed_ids([2, 7])}) == ["2"]


def test_terms_follow_from_the_stored_row(transaction: Transaction) -> None:
    attributes = {
        "long": "x" * 2000,
        "ids": ["a", "b" * 2000],
        "mark": MARK,
        "agl.prompt_token_ids": packed_ids(range(9)),
        "number": 1,
        "many": ["a"] * 20,
        "nested": {"x": ["y" * 3000]},
    }
    add(transaction, 1, attributes)
    row = transaction.row("SELECT attributes, stored_terms(run_id, name, attributes) FROM span")
    assert row is not None
    assert "x" * 2000 not in row[0]
    assert row[1] == terms.span_terms(None, "n", attributes)


def test_a_forgotten_span_leaves_no_terms(transaction: Transaction) -> None:
    add(transaction, 1, {"a": 1, "b": "x" * 5000})
    transaction.db.execute("DELETE FROM span")
    query = terms.match(None, [], {"a": 1})
    assert transaction.rows("SELECT rowid FROM span_term WHERE span_term MATCH ?", (query,)) == []


def test_a_span_that_comes_twice_is_found_once(transaction: Transaction) -> None:
    for _ in range(2):
        add(transaction, 1, {"a": 1})
    assert found(transaction.db, a=1) == ["1"]


def test_the_memory_of_terms_keeps_no_long_text() -> None:
    before = terms._short_term.cache_info()
    long = {"messages": "u" * 1024, "agl.prompt_token_ids": packed_ids([1, 2, 3]), "marked": f"a{MARK}b"}
    assert terms.span_terms(None, "chat policy", long).count(" ") == 3
    after = terms._short_term.cache_info()
    assert (after.hits, after.misses) == (before.hits, before.misses)
