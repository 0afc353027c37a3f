"""A store is opened by where it is, and read without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.errors import AccessDeniedError, ConfigError
from agl.store.client import LightningStoreClient
from agl.store.opening import store_to_change, store_to_read
from agl.store.sqlite import SqliteLightningStore


@pytest.mark.parametrize("by", ["file", "folder"])
async def test_the_store_of_a_run_is_read_and_never_written(tmp_path: Path, by: str) -> None:
    file = tmp_path / "store.sqlite"
    async with SqliteLightningStore(str(file)) as store:
        await store.add_run(name="n", run_id="r")
    async with store_to_read(str(file if by == "file" else tmp_path)) as store:
        assert [run.run_id for run in (await store.query_runs()).items] == ["r"]
        with pytest.raises(AccessDeniedError):
            await store.add_run(name="n", run_id="r2")


def test_a_url_is_a_served_store() -> None:
    assert isinstance(store_to_read("http://127.0.0.1:1", token="t"), LightningStoreClient)


def test_a_place_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no store at .*store\.sqlite"):
        store_to_read(str(tmp_path))


async def test_a_store_to_change_is_made_where_there_is_none(tmp_path: Path) -> None:
    for expected in ([], ["r"]):
        async with store_to_change(tmp_path / "store.sqlite") as store:
            assert [run.run_id for run in (await store.query_runs()).items] == expected
            await store.add_run(name="n", run_id="r")
