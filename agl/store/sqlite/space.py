"""The space of deleted rows goes back to the system while the store is served."""

from __future__ import annotations

import sqlite3
import time

from agl.store.sqlite.writer import Transaction

PAGES_AT_ONCE = 1000
"""4 MB: some 20 ms during which other writes wait."""
TRUNCATE_WAIT_SECONDS = 0.2
"""How long others may wait for a reader of the log, a backup say, to end. A later checkpoint cuts it too."""
TRUNCATE_TRIES = 4
"""A busy writer may leave no gap, and SQLite does not wait while a commit of its copies the log,"""
PAUSE_SECONDS = 0.05
"""so that is waited for here."""


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
        for _ in range(TRUNCATE_TRIES):
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            was_busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not was_busy:
                return
            time.sleep(PAUSE_SECONDS)
    finally:
        db.close()
