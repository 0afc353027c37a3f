"""Reads on threads of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.errors import InvalidRequestError, StoreError
from agl.store.sqlite.connection import open_database
from agl.store.sqlite.reader import Readers


async def test_a_read_sees_what_was_committed_before_it_began(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    db = open_database(path, now=1.0)
    readers = Readers(path)
    for number in range(5):
        db.execute("UPDATE identity SET created_at = ?", (float(number),))
        found = await readers.submit(lambda one: one.execute("SELECT created_at FROM identity").fetchone()[0])
        assert found == number
    with pytest.raises(StoreError, match="no such table"):
        await readers.submit(lambda one: one.execute("SELECT * FROM none"))
    with pytest.raises(InvalidRequestError, match="too large"):
        await readers.submit(lambda one: one.execute("SELECT ?", (2**70,)))
    assert await readers.submit(lambda one: one.in_transaction)  # a failed read leaves a usable connection
    readers.close()
    db.close()
