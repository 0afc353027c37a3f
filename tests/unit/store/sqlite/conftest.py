"""A database in memory and a transaction on it."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator

import pytest

from agl.store.sqlite.connection import open_database
from agl.store.sqlite.writer import Transaction


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    opened = open_database(":memory:", now=1.0)
    yield opened
    opened.close()


@pytest.fixture
def transaction(db: sqlite3.Connection) -> Transaction:
    numbers = itertools.count(1)
    return Transaction(
        db=db, now=100.0, new_id=lambda prefix: f"{prefix}-{next(numbers)}", positions=itertools.count(1)
    )
