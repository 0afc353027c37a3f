"""Lists of spans in SQL: from the indexes of an attempt, a run, a name or a trace, all else from the index of terms."""

from __future__ import annotations

import sqlite3

from agl.errors import InvalidRequestError
from agl.store.cutting import has_marks
from agl.store.packed import PACKED_KEYS, entry_from_text
from agl.store.sqlite import terms
from agl.store.sqlite.blobs import stowed_already
from agl.store.sqlite.pages import Filter, Listing, page_of
from agl.store.sqlite.rows import SPAN_COLUMNS, SPAN_TABLES, json_text, spans_from_rows, stored_hex
from agl.types import Page, Span, SpanQuery

MAX_NAMES = 256
"""Names of a prefix that one query of the index takes. With more, names are compared span by span."""
_NAMES = """
WITH RECURSIVE named(name) AS (
  SELECT min(name) FROM span WHERE name >= :prefix
  UNION ALL
  SELECT (SELECT min(name) FROM span WHERE name > named.name) FROM named WHERE named.name < :end
  LIMIT :most
)
SELECT name FROM named WHERE name < :end
"""
"""Jumps from name to name in the index instead of reading all spans."""
_LAST_TEXT = "\U0010ffff" * 64


def spans(db: sqlite3.Connection, query: SpanQuery) -> Page[Span]:
    """List spans: those of a rollout or an attempt by attempt and sequence id, all others as they came."""
    filtered = Filter()
    by_number = query.rollout_id is not None or query.attempt_id is not None
    if query.rollout_id is not None:
        filtered.add("s.rollout = (SELECT position FROM rollout WHERE rollout_id = ?)", query.rollout_id)
    if query.attempt_id == "latest":
        if query.rollout_id is None:
            raise InvalidRequestError(
                "attempt_id 'latest' names the newest attempt of a rollout: give rollout_id too"
            )
        filtered.add(
            "s.attempt = (SELECT max(b.position) FROM attempt b JOIN rollout q ON q.position = b.rollout"
            " WHERE q.rollout_id = ?)",
            query.rollout_id,
        )
    elif query.attempt_id is not None:
        filtered.add("s.rollout = (SELECT rollout FROM attempt WHERE attempt_id = ?)", query.attempt_id)
        filtered.add("s.attempt = (SELECT position FROM attempt WHERE attempt_id = ?)", query.attempt_id)
    filtered.equals("s.trace_id", None if query.trace_id is None else stored_hex(query.trace_id))
    filtered.equals("s.run_id", query.run_id)
    filtered.equals("s.name", query.name)
    if query.name_prefix:
        filtered.add("s.name >= ?", query.name_prefix)
        end = _prefix_end(query.name_prefix)
        if end is not None:
            filtered.add("s.name < ?", end)
    for name, value in (query.attributes or {}).items():
        _attribute_equals(db, filtered, name, value)
    listing = Listing(
        columns=SPAN_COLUMNS,
        tables=SPAN_TABLES,
        keys=("s.attempt", "s.sequence_id") if by_number else ("s.position",),
        key_of=(lambda row: (row[-2], row[-3])) if by_number else (lambda row: row[-1:]),
    )
    if not by_number and query.trace_id is None:
        matching = _match(db, query)
        if matching is not None:
            filtered.add("span_term MATCH ?", matching)
            listing.tables = f"span_term t CROSS JOIN {SPAN_TABLES}".replace(
                "span s", "span s ON s.position = t.rowid"
            )
            listing.keys, listing.name = ("t.rowid",), "s.position"
    return page_of(db, listing, query, filtered, spans_from_rows)


def _match(db: sqlite3.Connection, query: SpanQuery) -> str | None:
    """Return the query of the index of terms, None where it does not help."""
    attributes = query.attributes or {}
    if query.name is not None:
        names = [query.name]
    elif query.name_prefix:
        names = _names(db, query.name_prefix)
    else:
        names = []
    if not attributes and (not names or (query.name is not None and query.run_id is None)):
        return None  # the order of the table, or the index of runs or names
    return terms.match(query.run_id, names, attributes)


def _names(db: sqlite3.Connection, prefix: str) -> list[str]:
    """Return the names that begin with the prefix; none when they are too many."""
    values = {"prefix": prefix, "end": _prefix_end(prefix) or _LAST_TEXT, "most": MAX_NAMES + 1}
    names = [row[0] for row in db.execute(_NAMES, values)]
    return names if len(names) <= MAX_NAMES else []


def _attribute_equals(db: sqlite3.Connection, filtered: Filter, name: str, value: object) -> None:
    """Compare as JSON: true is not 1, 1 is 1.0, and objects are equal whatever the order of their keys."""
    one = "EXISTS (SELECT 1 FROM json_each(s.attributes) j WHERE j.key = ? AND"
    if value is None or isinstance(value, bool):
        filtered.add(f"{one} j.type = ?)", name, {None: "null", True: "true", False: "false"}[value])
        return
    if isinstance(value, int | float):
        filtered.add(f"{one} j.type IN ('integer', 'real') AND j.atom = ?)", name, value)
        return
    wanted = json_text(value, f"attribute {name}")
    plain = value
    if has_marks(wanted):
        found = stowed_already(db, value)
        value = None if found is None else found[0]  # None: a text that no row refers to
        wanted = json_text(value, f"attribute {name}")
    if isinstance(plain, str) and name.startswith(PACKED_KEYS) and entry_from_text(plain) is not None:
        same = "(j.atom = ? OR packed_text(s.packed, j.atom) = ?)"
        filtered.add(f"{one} j.type = 'text' AND {same})", name, value, plain)
    elif value is None:
        filtered.add("0")
    elif isinstance(value, str) and "\0" not in value:  # there json_each ends a text
        filtered.add(f"{one} j.type = 'text' AND j.atom = ?)", name, value)
    else:
        filtered.add("json_has(s.attributes, ?, ?)", name, wanted)


def _prefix_end(prefix: str) -> str | None:
    """Return the first text behind all texts that begin with ``prefix``, None when there is none."""
    for cut in range(len(prefix), 0, -1):
        point = ord(prefix[cut - 1]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: cut - 1] + chr(point)
    return None
