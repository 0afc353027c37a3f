"""A run's entry in the store: its status follows what becomes of the block."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from agl.launch.run_record import git_commit, recorded_status
from agl.store.sqlite import InMemoryLightningStore


@pytest.mark.parametrize(
    ("raised", "status"),
    [(None, "succeeded"), (ValueError("no"), "failed"), (asyncio.CancelledError(), "interrupted")],
)
async def test_the_status_says_how_the_block_ended(raised: BaseException | None, status: str) -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="n", run_id="r")
        with suppress(ValueError, asyncio.CancelledError):
            async with recorded_status(store, "r"):
                assert (await store.query_runs()).items[0].status == "running"
                if raised is not None:
                    raise raised
        assert (await store.query_runs()).items[0].status == status


async def test_a_store_that_is_gone_hides_no_error() -> None:
    store = InMemoryLightningStore()

    async def fails() -> None:
        async with recorded_status(store, "r"):
            await store.close()
            raise ValueError("the cause")

    async with store:
        await store.add_run(name="n", run_id="r")
        with pytest.raises(ValueError, match="the cause"):
            await fails()


def test_outside_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() is None
