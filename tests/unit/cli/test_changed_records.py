"""The store that a command changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from recorded_folder import recorded_folder

from agl.cli.changed_records import place_of, rollout_named, run_folder_of, to_change
from agl.errors import ConfigError, StoreError
from agl.store.sqlite import SqliteLightningStore
from agl.types import Rollout


async def test_a_rollout_is_found_in_whichever_run_has_it(in_folder: Path) -> None:
    await recorded_folder(in_folder, [0])
    assert await place_of("one-0", None, None, kinds=("rollout",)) == "runs/one/store.sqlite"
    assert await place_of(None, None, "one", kinds=("rollout",)) == "runs/one/store.sqlite"
    assert await place_of("one-0", "http://127.0.0.1:1", None, kinds=("rollout",)) is None
    with pytest.raises(ConfigError, match="name two stores"):
        await place_of("one-0", "http://127.0.0.1:1", "one", kinds=("rollout",))


async def test_a_store_that_its_owner_serves_is_named_by_its_url(in_folder: Path) -> None:
    folder = await recorded_folder(in_folder, [0])
    place = str(folder / "store.sqlite")
    async with SqliteLightningStore(place) as owner:
        owner.announce("http://127.0.0.1:4747")
        with pytest.raises(
            StoreError, match=r"give --store-url http://127\.0\.0\.1:4747 \(its token is .*store\.token"
        ):
            async with to_change(None, place):
                pass
        owner.announce("")
        with pytest.raises(StoreError, match="stop it with Ctrl-C first, or serve the records"):
            async with to_change(None, place):
                pass
    async with to_change(None, place) as store:
        assert (await rollout_named(store, "one-0")).reward == 0.0
        with pytest.raises(ConfigError, match="no rollout is called 'two'"):
            await rollout_named(store, "two")


def test_the_settings_of_a_rollouts_run_are_beside_its_store_or_under_runs(in_folder: Path) -> None:
    asyncio.run(recorded_folder(in_folder, [0]))
    rollout = Rollout(rollout_id="r", run_id="one", task=0, created_at=0.0)
    assert run_folder_of("runs/one/store.sqlite", rollout) == Path("runs/one")
    assert run_folder_of(None, rollout) == Path("runs/one")
    assert run_folder_of("elsewhere/store.sqlite", rollout) == Path("runs/one")
    assert run_folder_of(None, rollout.model_copy(update={"run_id": "two"})) is None
    assert run_folder_of(None, rollout.model_copy(update={"run_id": None})) is None
