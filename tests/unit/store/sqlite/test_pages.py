"""A page reads one row more than it shows, and continues behind its last."""

from __future__ import annotations

import sqlite3

from agl.store.sqlite.pages import Filter, Listing, each, page_of
from agl.types.query import ListQuery

NUMBERS = Listing(
    columns="value", tables="json_each('[1, 2, 3]')", keys=("value",), key_of=lambda row: row, name="number"
)


def test_pages_join_whatever_the_columns_are_called_in_between(db: sqlite3.Connection) -> None:
    first = page_of(db, NUMBERS, ListQuery(limit=2), Filter(), each(lambda row: row[0]))
    assert first.items == [1, 2]
    renamed = Listing(
        columns="value",
        tables="json_each('[1, 2, 3]')",
        keys=("atom",),
        key_of=lambda row: row,
        name="number",
    )
    query = ListQuery(limit=2, cursor=first.next_cursor)
    second = page_of(db, renamed, query, Filter(), each(lambda row: row[0]))
    assert second.items == [3]
    assert second.next_cursor is None


def test_no_condition_is_no_clause() -> None:
    filtered = Filter()
    filtered.equals("a", None)
    filtered.among("a", None)
    assert filtered.where() == ""
    filtered.among("a", ("x",))
    assert filtered.where() == "WHERE a IN (SELECT value FROM json_each(?))"
    assert filtered.values == ['["x"]']
