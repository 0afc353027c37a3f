"""The file: whose it is, what it is, how it is written."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agl.errors import StoreError
from agl.store.sqlite.connection import Ownership, connect, identity, json_has, open_database, size_bytes
from agl.store.sqlite.migrations import SCHEMA_VERSION


def test_a_store_survives_with_its_identity(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    db = open_database(path, now=1.0)
    made = identity(db)
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert db.execute("PRAGMA synchronous").fetchone()[0] == 1  # NORMAL
    assert db.execute("PRAGMA auto_vacuum").fetchone()[0] == 2  # INCREMENTAL
    assert db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    db.close()
    again = open_database(path, now=2.0)
    assert identity(again) == made
    again.close()
    other = open_database(str(tmp_path / "other.sqlite"), now=1.0)
    assert identity(other) != made
    other.close()


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "foreign.sqlite")
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE rollout (x)")
    foreign.close()
    with pytest.raises(StoreError, match="another program"):
        open_database(path, now=1.0)
    assert sqlite3.connect(path).execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 1


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a database" * 100)
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        open_database(str(path), now=1.0)
    assert path.read_text() == "not a database" * 100


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    db = open_database(path, now=1.0)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StoreError, match="newer agl"):
        open_database(path, now=1.0)


def test_a_file_has_one_owner_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    first, second = Ownership(path), Ownership(path)
    first.take()
    with pytest.raises(StoreError, match=rf"store\.sqlite is open in process {os.getpid()}"):
        second.take()
    first.let_go()
    first.let_go()
    second.take()
    second.let_go()


def test_an_owner_that_serves_is_named_with_its_url(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    owner = Ownership(path)
    owner.announce("http://127.0.0.1:1")  # not the owner yet
    owner.take()
    for url, words in (
        (
            "http://127.0.0.1:4747",
            rf"in process {os.getpid()}, which serves it at http://127\.0\.0\.1:4747: use",
        ),
        ("", rf"in process {os.getpid()}: end that process"),
    ):
        owner.announce(url)
        with pytest.raises(StoreError, match=words):
            Ownership(path).take()
    owner.let_go()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    open_database(path, now=1.0).close()
    db = connect(path, read_only=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM identity")
    db.close()


def test_what_sqlite_cannot_open_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path} cannot be opened as a store"):
        open_database(str(tmp_path), now=1.0)


def test_the_size_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    db = open_database(str(path), now=1.0)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert size_bytes(db) == path.stat().st_size
    db.close()


def test_json_is_compared_as_values() -> None:
    assert json_has('{"k":{"a":1,"b":[1.0]}}', "k", '{"b": [1], "a": 1}')
    assert not json_has('{"k":[1,2]}', "k", "[2,1]")


def test_a_disk_without_room_for_a_store_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    program = (
        "import resource; from agl.errors import StoreError; from agl.store.sqlite.connection import open_database\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        f"try: open_database({path!r}, now=1.0)\n"
        "except StoreError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{path} cannot be opened as a store")
    assert "is the disk full?" in said
    open_database(path, now=1.0).close()  # what the failed one left is no hindrance
