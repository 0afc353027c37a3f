"""Resources in SQL: numbered, immutable versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from agl.errors import InvalidRequestError, NotFoundError
from agl.store.cutting import has_marks
from agl.store.sqlite.blobs import Row, filled_rows, json_value, stow
from agl.store.sqlite.rows import json_text
from agl.store.sqlite.writer import Transaction
from agl.types import NamedResources, Resource

COLUMNS = "resources_id, version, run_id, resources, created_at"


def add(
    transaction: Transaction, resources: Mapping[str, Resource], run_id: str | None, resources_id: str | None
) -> NamedResources:
    """Store a new version; a known id is answered with the version that it named first."""
    if resources_id is not None:
        known = find(transaction.db, resources_id)
        if known is not None:
            return known
    row = transaction.row("SELECT coalesce(max(version), 0) + 1 FROM resources")
    assert row is not None
    values: dict[str, Any] = {
        "resources_id": resources_id or transaction.new_id("rs"),
        "version": row[0],
        "run_id": run_id,
        "resources": dict(resources),
        "created_at": transaction.now,
    }
    try:
        named = NamedResources(**values)
    except ValueError as error:
        raise InvalidRequestError(f"resources of unknown shape: {error}") from error
    plain = named.model_dump()["resources"]
    text = stored = json_text(plain, "a resource")
    if has_marks(text):
        stored = json_text(stow(transaction.db, [plain])[0], "a resource")
    transaction.db.execute(
        f"INSERT INTO resources ({COLUMNS}) VALUES (?, ?, ?, ?, ?)",
        (named.resources_id, named.version, run_id, stored, transaction.now),
    )
    return _from_row((named.resources_id, named.version, run_id, text, transaction.now))


def find(db: sqlite3.Connection, resources_id: str) -> NamedResources | None:
    """Return that version, None for an unknown id."""
    row = db.execute(f"SELECT {COLUMNS} FROM resources WHERE resources_id = ?", (resources_id,)).fetchone()
    return None if row is None else from_rows(db, [row])[0]


def get(db: sqlite3.Connection, resources_id: str) -> NamedResources:
    """Return that version. NotFoundError for an unknown id."""
    named = find(db, resources_id)
    if named is None:
        raise _missing(resources_id)
    return named


def latest(db: sqlite3.Connection, run_id: str | None) -> NamedResources | None:
    """Return the newest version, of the run if one is given."""
    where, values = ("", ()) if run_id is None else ("WHERE run_id = ?", (run_id,))
    row = db.execute(
        f"SELECT {COLUMNS} FROM resources {where} ORDER BY version DESC LIMIT 1", values
    ).fetchone()
    return None if row is None else from_rows(db, [row])[0]


def latest_resources_id(transaction: Transaction, run_id: str | None) -> str | None:
    """Return what a rollout without resources gets: the newest version of its run, else the newest of all."""
    row = None
    if run_id is not None:
        row = transaction.row(
            "SELECT resources_id FROM resources WHERE run_id = ? ORDER BY version DESC LIMIT 1", (run_id,)
        )
    row = row or transaction.row("SELECT resources_id FROM resources ORDER BY version DESC LIMIT 1")
    return None if row is None else row[0]


def require_resources(transaction: Transaction, resources_id: str) -> None:
    """Raise NotFoundError unless the id is known."""
    if transaction.row("SELECT 1 FROM resources WHERE resources_id = ?", (resources_id,)) is None:
        raise _missing(resources_id)


def from_rows(db: sqlite3.Connection, rows: Sequence[Row]) -> list[NamedResources]:
    """Return the resources of ``COLUMNS``."""
    return [_from_row(row) for row in filled_rows(db, rows, (3,))]


def _from_row(row: Row) -> NamedResources:
    return NamedResources(
        resources_id=row[0], version=row[1], run_id=row[2], resources=json_value(row[3]), created_at=row[4]
    )


def _missing(resources_id: str) -> NotFoundError:
    return NotFoundError(f"no resources have the id {resources_id!r}: add them before they are used")
