"""The space of deleted rows goes back to the system while the store is served."""

from __future__ import annotations

import sqlite3

from agl.store.sqlite.writer import Transaction

PAGES_AT_ONCE = 1000
"""4 MB: some 20 ms during which other writes wait."""
TRUNCATE_WAIT_SECONDS = 0.2
"""How long others may wait for a reader of the log, a backup say, to end. A later checkpoint cuts it too."""


def give_pages_back(transaction: Transaction) -> bool:
    """Cut up to ``PAGES_AT_ONCE`` free pages off the file; return whether to go on."""
    before = _free_pages(transaction)
    transaction.rows(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
    return 0 < _free_pages(transaction) < before


def _free_pages(transaction: Transaction) -> int:
    row = transaction.row("PRAGMA freelist_count")
    assert row is not None
    return row[0]


def truncate_log(path: str) -> None:
    """Write the write-ahead log into the file and cut it to nothing, where no reader needs it."""
    db = sqlite3.connect(path, isolation_level=None, timeout=TRUNCATE_WAIT_SECONDS)
    try:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.close()
