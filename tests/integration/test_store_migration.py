"""`kill -9` in the middle of a migration leaves a file that opens and is complete."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from store_v1 import Records, write_store_v1

from agl.store.paging import iter_rollouts, iter_spans
from agl.store.sqlite import SqliteLightningStore
from agl.types import SpanQuery

NUM_SPANS = 20_000
MIGRATE = """
import sys
from agl.store.sqlite.connection import open_database
sys.stdout.write("begin\\n")
sys.stdout.flush()
open_database(sys.argv[1], now=1.0).close()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldStore:
    """A file of version 1, what it holds, and how long its migration takes here."""

    path: Path
    records: Records
    seconds: float


@pytest.fixture(scope="module")
def old_store(tmp_path_factory: pytest.TempPathFactory) -> OldStore:
    """A large file of version 1."""
    path = tmp_path_factory.mktemp("old") / "store.sqlite"
    db = sqlite3.connect(path, isolation_level=None)
    records = write_store_v1(db, num_spans=NUM_SPANS)
    db.close()
    copy = shutil.copy(path, path.with_name("copy.sqlite"))
    with subprocess.Popen([sys.executable, "-c", MIGRATE, copy], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        begin = time.monotonic()
        assert process.wait() == 0
    return OldStore(path=path, records=records, seconds=time.monotonic() - begin)


def killed_in_migration(path: Path, seconds: float) -> bool:
    """Migrate the file in a process and kill it that long after it began; return whether it was under way still."""
    with subprocess.Popen([sys.executable, "-c", MIGRATE, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            return True
    return False


@pytest.mark.parametrize("moment", [0.1, 0.4, 0.7, 0.95])
async def test_a_migration_killed_at_any_moment_loses_nothing(
    tmp_path: Path, old_store: OldStore, moment: float
) -> None:
    path = Path(shutil.copy(old_store.path, tmp_path / "store.sqlite"))
    killed_in_migration(path, moment * old_store.seconds)
    killed_in_migration(path, moment * old_store.seconds / 2)  # and again while it recovers
    records = old_store.records
    async with SqliteLightningStore(str(path)) as store:
        assert (await store.health())["schema_version"] == 3
        assert [one async for one in iter_rollouts(store)] == records.rollouts
        assert [one async for one in iter_spans(store, SpanQuery())] == records.spans + records.strays
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert db.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
    db.close()
