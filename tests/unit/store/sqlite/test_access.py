"""An open database, and one that is not."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from agl.errors import StoreError, StoreUnavailableError
from agl.store.sqlite.access import Access, random_id
from agl.store.sqlite.connection import identity
from agl.store.sqlite.writer import nothing


def test_ids_carry_their_prefix_and_64_random_bits() -> None:
    assert re.fullmatch(r"ro-[0-9a-f]{16}", random_id("ro"))
    assert random_id("ro") != random_id("ro")


@pytest.mark.parametrize("name", [":memory:", "folder/store.sqlite"])
async def test_a_database_is_open_between_open_and_close(tmp_path: Path, name: str) -> None:
    path = name if name == ":memory:" else str(tmp_path / name)
    access = Access(path, clock=time.time, new_id=random_id)
    with pytest.raises(StoreUnavailableError, match="not open"):
        access.write(nothing)
    with pytest.raises(StoreUnavailableError), access.visit():
        pass
    await access.open()
    with pytest.raises(StoreError, match="open already"):
        await access.open()
    assert len(await access.read(identity)) == 36
    await access.close()
    await access.close()
    with pytest.raises(StoreUnavailableError):
        access.read(identity)


async def test_a_store_that_fails_to_open_leaves_the_file_free(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_text("this is no database, and long enough to tell" * 100)
    access = Access(str(path), clock=time.time, new_id=random_id)
    with pytest.raises(StoreError, match="cannot be opened"):
        await access.open()
    path.unlink()
    await access.open()
    await access.close()


async def test_a_folder_is_no_store_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        await Access(str(tmp_path / "folder"), clock=lambda: 1.0, new_id=random_id).open()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


async def test_a_copy_ends_when_the_store_closes(tmp_path: Path) -> None:
    access = Access(str(tmp_path / "store.sqlite"), clock=time.time, new_id=random_id)
    await access.open()
    await access.write(lambda transaction: transaction.row("SELECT 1"))
    copy = asyncio.create_task(access.back_up(str(tmp_path / "copy")))
    await asyncio.sleep(0)
    access.closing = True  # as it is once close has begun
    with pytest.raises(StoreUnavailableError, match="given up"):
        await copy
    access.closing = False
    await access.close()
    assert not list(tmp_path.glob("copy*"))
