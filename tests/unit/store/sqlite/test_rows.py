"""Rows to records and back."""

from __future__ import annotations

import sqlite3

import pytest

from agl.errors import InvalidRequestError
from agl.store.sqlite import rows
from agl.types import ErrorInfo, RolloutConfig


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0af7651916cd43dd8448eb211c80319c", 16),
        ("00f067aa0ba902b7", 8),
        ("00F067AA0BA902B7", None),
        ("x", None),
    ],
)
def test_hex_ids_are_halved_and_others_kept(text: str, num_bytes: int | None) -> None:
    stored = rows.stored_hex(text)
    assert (len(stored) if isinstance(stored, bytearray) else None) == num_bytes
    assert rows.hex_from_stored(stored) == text


def test_what_is_no_json_is_refused_by_name() -> None:
    assert rows.json_text({"a": (1, "ü")}, "task") == '{"a":[1,"ü"]}'
    for wrong in ({1, 2}, {1: 2}, 2**70, "\ud800"):
        with pytest.raises(InvalidRequestError, match="task of rollout x is not JSON"):
            rows.json_text(wrong, "task of rollout x")


def test_configs_and_errors_come_back() -> None:
    config = RolloutConfig(timeout_seconds=1.5, max_attempts=3, retry_on=("timeout",))
    assert rows.config_from_text(rows.config_text(config)) == config
    assert rows.error_text(None) is None
    error = ErrorInfo(cause="E", message="m", traceback="t")
    assert ErrorInfo.model_validate_json(rows.error_text(error) or "") == error


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_any_number_of_rows_is_inserted_once(count: int) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (a UNIQUE, b)")
    given = [(number, str(number)) for number in range(count)]
    assert rows.insert_rows(db, "INSERT INTO t (a, b)", given) == count
    assert db.execute("SELECT * FROM t ORDER BY a").fetchall() == given
    assert (
        rows.insert_rows(db, "INSERT INTO t (a, b)", [*given, (-1, "")], tail="ON CONFLICT DO NOTHING") == 1
    )


def test_columns_without_any_value_are_inserted_as_null() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (a, b DEFAULT 1, c)")
    some = [(1, None, None), (2, None, "x")]
    assert rows.insert_rows(db, "INSERT INTO t (a, b, c)", [(0, None, None)]) == 1
    assert rows.insert_rows(db, "INSERT INTO t (a, b, c)", some) == 2
    assert db.execute("SELECT * FROM t ORDER BY a").fetchall() == [(0, None, None), *some]


def test_ids_with_quotes_pass_as_one_parameter() -> None:
    db = sqlite3.connect(":memory:")
    found = db.execute("SELECT value FROM json_each(?)", (rows.json_list(['a"b', "c'd", "ü"]),)).fetchall()
    assert [row[0] for row in found] == ['a"b', "c'd", "ü"]
