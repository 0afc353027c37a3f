"""Pages of lists in SQL: filters and keysets. A page continues behind the sort key of the last row it showed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agl.store.paging import cursor_key, cursor_text
from agl.store.sqlite.blobs import Row
from agl.store.sqlite.rows import json_list
from agl.types import Page
from agl.types.query import ListQuery

T = TypeVar("T")
Make = Callable[[sqlite3.Connection, Sequence[Row]], list[T]]
"""Builds the records of a page, all at once: what they share elsewhere is read in one query."""


@dataclass(slots=True)
class Filter:
    """Conditions joined with AND, and their values."""

    conditions: list[str] = field(default_factory=list[str])
    values: list[Any] = field(default_factory=list[Any])

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition with its values."""
        self.conditions.append(condition)
        self.values.extend(values)

    def equals(self, column: str, value: object) -> None:
        """Compare a column unless the value is None."""
        if value is not None:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str] | None) -> None:
        """Match any of the values unless they are None."""
        if values is not None:
            self.add(f"{column} IN (SELECT value FROM json_each(?))", json_list(values))

    def where(self) -> str:
        """Return the clause."""
        return f"WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


@dataclass(slots=True, kw_only=True)
class Listing:
    """A list to read: its columns and tables, and the columns that order it, whose values are never NULL."""

    columns: str
    tables: str
    keys: tuple[str, ...]
    key_of: Callable[[Row], Sequence[Any]]
    name: str = ""
    """What cursors call the order, where it is not by the names of the columns."""


def page_of(
    db: sqlite3.Connection, what: Listing, query: ListQuery, filtered: Filter, make: Make[T]
) -> Page[T]:
    """Return a page in the order of the listing's keys."""
    order = f"{what.name or ','.join(what.keys)} {query.order}"
    if query.cursor is not None:
        after = cursor_key(query.cursor, order, len(what.keys))
        sign = ">" if query.order == "asc" else "<"
        filtered.add(f"({', '.join(what.keys)}) {sign} ({', '.join('?' * len(after))})", *after)
    by = ", ".join(f"{key} {query.order}" for key in what.keys)
    return read_page(db, what, query, filtered, make, by=by, order=order)


def read_page(
    db: sqlite3.Connection,
    what: Listing,
    query: ListQuery,
    filtered: Filter,
    make: Make[T],
    *,
    by: str,
    order: str,
) -> Page[T]:
    """Return a page in the order of the SQL ``by``, which cursors call ``order``."""
    sql = f"SELECT {what.columns} FROM {what.tables} {filtered.where()} ORDER BY {by} LIMIT ?"
    rows = db.execute(sql, (*filtered.values, query.limit + 1)).fetchall()
    return made_page(db, rows, query, order=order, key_of=what.key_of, make=make)


def made_page(
    db: sqlite3.Connection,
    rows: Sequence[Row],
    query: ListQuery,
    *,
    order: str,
    key_of: Callable[[Row], Sequence[Any]],
    make: Make[T],
) -> Page[T]:
    """Return the page of rows that were read, one more than it shows where there is one."""
    shown = rows[: query.limit]
    cursor = cursor_text(order, key_of(shown[-1])) if len(rows) > query.limit else None
    return Page(items=make(db, shown), next_cursor=cursor)


def each(make: Callable[[Row], T]) -> Make[T]:
    """Return what builds a page of records that each need their own row only."""
    return lambda _, rows: [make(row) for row in rows]
