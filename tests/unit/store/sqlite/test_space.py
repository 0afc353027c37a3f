"""Free pages leave the file."""

from __future__ import annotations

import itertools
from pathlib import Path

from agl.store.sqlite.connection import open_database
from agl.store.sqlite.space import PAGES_AT_ONCE, give_pages_back, truncate_log
from agl.store.sqlite.writer import Transaction


def test_free_pages_go_in_steps_and_the_log_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    db = open_database(str(path), now=1.0)
    transaction = Transaction(db=db, now=1.0, new_id=str, positions=itertools.count(1))
    empty = db.execute("PRAGMA page_count").fetchone()[0]
    page = b"x" * 4096
    db.execute("BEGIN")
    for number in range(2 * PAGES_AT_ONCE):
        db.execute("INSERT INTO blob_content VALUES (?, ?)", (number, page))
    db.execute("COMMIT")
    db.execute("DELETE FROM blob_content")
    steps = 0
    while give_pages_back(transaction):
        steps += 1
    assert steps >= 2  # each blob took its page and a share of another
    assert db.execute("PRAGMA page_count").fetchone()[0] == empty
    truncate_log(str(path))
    assert path.with_name("store.sqlite-wal").stat().st_size == 0
    assert path.stat().st_size == empty * 4096
    assert not give_pages_back(transaction)
    db.close()
