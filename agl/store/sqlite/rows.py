"""Rows to records and back. Columns are listed once, in the order in which the records are built from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, compress
from typing import Any

import orjson

from agl.errors import InvalidRequestError
from agl.store.sqlite.blobs import Row, filled_rows, json_value
from agl.types import (
    Attempt,
    AttemptedRollout,
    ErrorInfo,
    Rollout,
    RolloutConfig,
    Span,
    SpanEvent,
    SpanLink,
    SpanStatus,
)

ROLLOUT_COLUMNS = (
    "r.rollout_id, r.run_id, r.task, r.mode, r.group_id, r.resources_id, r.config, r.metadata, r.priority, r.status,"
    " r.reward, r.reward_dimensions, r.error, r.created_at, r.started_at, r.finished_at, r.num_attempts, r.retry_at,"
    " r.position"
)
NUM_ROLLOUT_COLUMNS = 19
ATTEMPT_COLUMNS = (
    "a.attempt_id, a.sequence_id, a.worker_id, a.status, a.started_at, a.last_heartbeat_at, a.finished_at, a.error,"
    " a.lease, a.ended_by, a.position"
)
ROLLOUT_JSON = (2, 7)
"""Where ``ROLLOUT_COLUMNS`` and ``HELD_COLUMNS`` hold JSON that may refer to blobs."""
HELD_COLUMNS = f"{ROLLOUT_COLUMNS}, {ATTEMPT_COLUMNS}"
"""A rollout and one of its attempts."""
SPAN_COLUMNS = (
    "s.trace_id, s.span_id, s.parent_id, s.name, s.kind, s.status, s.attributes, s.events, s.links, s.resource,"
    " s.start_time_ns, s.end_time_ns, r.rollout_id, a.attempt_id, s.packed, s.sequence_id, s.attempt, s.position"
)
SPAN_TABLES = (
    "span s LEFT JOIN rollout r ON r.position = s.rollout LEFT JOIN attempt a ON a.position = s.attempt"
)
SPAN_JSON = (6, 7, 9)
"""Where ``SPAN_COLUMNS`` holds JSON that may refer to blobs; the first one may refer to packed values too."""
SPAN_PACKED = 14
NO_ATTEMPT = 0
ROWS_AT_ONCE = 64
"""Rows a statement. Each statement hands the interpreter lock over twice; 64 rows of a span have 1,088 parameters."""


def json_text(value: object, what: str) -> str:
    """Return a value as JSON text.

    Raises:
        InvalidRequestError: it is not JSON.
    """
    try:
        return orjson.dumps(value).decode("utf-8")
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from error


def config_text(config: RolloutConfig) -> str:
    """Return a rollout's config as stored."""
    return config.model_dump_json()


@lru_cache(maxsize=1024)
def config_from_text(text: str) -> RolloutConfig:
    """Return the config that is stored as this text. Shared by rollouts, for it is immutable."""
    return RolloutConfig.model_validate_json(text)


def error_text(error: ErrorInfo | None) -> str | None:
    """Return an error as stored."""
    return None if error is None else error.model_dump_json()


def rollouts_from_rows(db: sqlite3.Connection, rows: Sequence[Row]) -> list[Rollout]:
    """Return the rollouts of ``ROLLOUT_COLUMNS``."""
    return [rollout_from_row(row) for row in filled_rows(db, rows, ROLLOUT_JSON)]


def rollout_from_row(row: Row) -> Rollout:
    """Return the rollout of ``ROLLOUT_COLUMNS``, of a row that refers to no blobs."""
    return Rollout.trusted(
        {
            "rollout_id": row[0],
            "run_id": row[1],
            "task": json_value(row[2]),
            "mode": row[3],
            "group_id": row[4],
            "resources_id": row[5],
            "config": config_from_text(row[6]),
            "metadata": json_value(row[7]),
            "priority": row[8],
            "status": row[9],
            "reward": row[10],
            "reward_dimensions": orjson.loads(row[11]),
            "error": None if row[12] is None else ErrorInfo.model_validate_json(row[12]),
            "created_at": row[13],
            "started_at": row[14],
            "finished_at": row[15],
            "num_attempts": row[16],
            "retry_at": row[17],
        }
    )


def attempt_from_row(rollout_id: str, row: Row) -> Attempt:
    """Return the attempt of ``ATTEMPT_COLUMNS``."""
    return Attempt.trusted(
        {
            "attempt_id": row[0],
            "rollout_id": rollout_id,
            "sequence_id": row[1],
            "worker_id": row[2],
            "status": row[3],
            "started_at": row[4],
            "last_heartbeat_at": row[5],
            "finished_at": row[6],
            "error": None if row[7] is None else ErrorInfo.model_validate_json(row[7]),
            "lease": row[8],
        }
    )


def held_from_rows(db: sqlite3.Connection, rows: Sequence[Row]) -> list[AttemptedRollout]:
    """Return the rollouts and attempts of ``HELD_COLUMNS``."""
    return [
        AttemptedRollout.trusted(
            {"rollout": rollout_from_row(row), "attempt": attempt_from_row(row[0], row[NUM_ROLLOUT_COLUMNS:])}
        )
        for row in filled_rows(db, rows, ROLLOUT_JSON)
    ]


def spans_from_rows(db: sqlite3.Connection, rows: Sequence[Row]) -> list[Span]:
    """Return the spans of ``SPAN_COLUMNS``."""
    full = filled_rows(db, rows, SPAN_JSON, packed=(SPAN_JSON[0], SPAN_PACKED))
    return [_span_from_row(row) for row in full]


@lru_cache(maxsize=256)
def _status_from_text(text: str | None) -> SpanStatus:
    return SpanStatus() if text is None else SpanStatus.model_validate_json(text)


def _span_from_row(row: Row) -> Span:
    return Span.trusted(
        {
            "trace_id": hex_from_stored(row[0]),
            "span_id": hex_from_stored(row[1]),
            "parent_id": None if row[2] is None else hex_from_stored(row[2]),
            "name": row[3],
            "kind": row[4],
            "status": _status_from_text(row[5]),
            "attributes": json_value(row[6]),
            "events": () if row[7] is None else tuple(SpanEvent(**event) for event in json_value(row[7])),
            "links": () if row[8] is None else tuple(SpanLink(**link) for link in orjson.loads(row[8])),
            "resource": {} if row[9] is None else json_value(row[9]),
            "start_time_ns": row[10],
            "end_time_ns": row[11],
            "rollout_id": row[12],
            "attempt_id": row[13],
            "sequence_id": row[15] if row[16] != NO_ATTEMPT else None,
        }
    )


def stored_hex(text: str) -> bytearray | str:
    """Return a trace or span id as bytes where it is lower-case hex, which halves it; else as it is.

    A bytearray, for ``sqlite3`` looks for an adapter of each value that is ``bytes``, which takes longer than all else.
    """
    if len(text) in (16, 32):
        try:
            packed = bytearray.fromhex(text)
        except ValueError:
            return text
        if packed.hex() == text:
            return packed
    return text


def hex_from_stored(stored: bytes | bytearray | str) -> str:
    """Return the id that ``stored_hex`` stored."""
    return stored if isinstance(stored, str) else stored.hex()


@lru_cache(maxsize=4096)
def _insert_sql(head: str, given: tuple[bool, ...], rows: int, tail: str) -> str:
    one = f"({','.join('?' if is_given else 'NULL' for is_given in given)})"
    return f"{head} VALUES {','.join([one] * rows)} {tail}"


def insert_rows(db: sqlite3.Connection, head: str, rows: Sequence[Sequence[Any]], *, tail: str = "") -> int:
    """Insert rows, many a statement; return how many the table took (fewer with ``ON CONFLICT DO NOTHING``).

    A column without any value is no parameter: ``sqlite3`` takes as long to bind a None as five texts.
    """
    taken = 0
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        columns = [*zip(*part, strict=True)]
        given = tuple(column.count(None) < len(part) for column in columns)
        sql = _insert_sql(head, given, len(part), tail)
        values = zip(*compress(columns, given), strict=True)
        taken += db.execute(sql, [*chain.from_iterable(values)]).rowcount
    return taken


def json_list(values: Iterable[str | int]) -> str:
    """Return values for ``IN (SELECT value FROM json_each(?))``: one parameter for any number of values."""
    return orjson.dumps(list(values)).decode("utf-8")
