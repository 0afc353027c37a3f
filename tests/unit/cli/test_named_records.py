"""Which record an id means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from listed_records import listed_store, made_span

from agl.cli.named_records import (
    close_matches,
    file_with,
    find,
    one_of,
    place_options,
    record_named,
    unknown_id,
)
from agl.errors import ConfigError
from agl.store.sqlite import SqliteStore
from agl.types import Attempt, NamedResources, Rollout, RolloutRequest, Run, Worker


async def fill(store: SqliteStore, run_id: str = "run-1") -> None:
    await store.add_run(name="demo", run_id=run_id, command="train")
    await store.register_worker("worker-1")
    await store.add_resources({"prompt": "x"}, resources_id=f"{run_id}-rs")
    held = await store.start_rollout(
        RolloutRequest(task=1, rollout_id=f"{run_id}-0", run_id=run_id), worker_id="worker-1"
    )
    await store.add_span(
        made_span(1, "s", rollout_id=f"{run_id}-0", attempt_id=held.attempt.attempt_id, seconds=1.0)
    )
    await store.start_rollout(RolloutRequest(task=2, run_id=run_id))


async def test_an_id_finds_its_record_whatever_kind_it_is() -> None:
    store, _ = listed_store()
    async with store:
        await fill(store)
        found = [await find(store, one) for one in ("run-1-0", "ro-1", "run-1", "run-1-rs", "worker-1")]
        assert [type(one) for one in found] == [Rollout, Rollout, Run, NamedResources, Worker]
        with_span, without = await find(store, "at-1"), await find(store, "at-2")
        assert isinstance(with_span, Attempt)
        assert isinstance(without, Attempt)
        assert (with_span.rollout_id, without.rollout_id) == ("run-1-0", "ro-1")
        nothing = ["", "lost", "at-9", "a/b", "latest", "x" * 300, "spaces in it"]
        assert [await find(store, one) for one in nothing] == [None] * len(nothing)
        assert await find(store, "run-1", kinds=["rollout"]) is None


async def test_an_unknown_id_names_like_ones_and_the_command_that_lists_them() -> None:
    store, _ = listed_store()
    async with store:
        await fill(store)
        assert str(await unknown_id(store, "run-1-O")) == (
            "no rollout, run, resources, worker or attempt is called 'run-1-O' in memory; did you mean run-1-0 or"
            " run-1 or run-1-rs? (agl ls rollouts lists what is there)"
        )
        assert "(agl ls workers lists" in str(await unknown_id(store, "worker-2"))
        assert "(agl ls resources lists" in str(await unknown_id(store, "rs-abc"))
        assert str(await unknown_id(store, "\x1bzzz", kinds=["rollout"])) == (
            "no rollout is called 'zzz' in memory (agl ls rollouts lists what is there)"
        )


async def test_without_a_place_all_runs_are_asked_first_those_whose_name_begins_the_id(
    in_folder: Path,
) -> None:
    with pytest.raises(ConfigError, match="no run with records"):
        await file_with("x")
    for begun, name in enumerate(("old", "old-2", "new")):
        folder = in_folder / "runs" / name
        folder.mkdir(parents=True)
        (folder / "settings.yaml").write_text("name: x\n")
        os.utime(folder / "settings.yaml", (begun, begun))
        store, _ = listed_store(folder / "store.sqlite")
        async with store:
            await fill(store, name)
    assert (await file_with("old-0")).parent.name == "old"
    assert (await file_with("old-2-0")).parent.name == "old-2"
    assert (await file_with("lost")).parent.name == "new"
    async with record_named("old-rs", None, None) as (store, record):
        assert isinstance(record, NamedResources)
        assert store.location.endswith(str(Path("runs/old/store.sqlite")))
        assert place_options(store, store_url=None, run_dir=None) == f"--run-dir {Path('runs/old')}"
        assert place_options(store, store_url="http://x", run_dir=None) == "--store-url http://x"
        assert place_options(store, store_url=None, run_dir="a b") == "--run-dir 'a b'"
    async with record_named("new-0", None, None) as (store, _):
        assert place_options(store, store_url=None, run_dir=None) == ""
    with pytest.raises(ConfigError, match=r"is called 'nowhere' in any run under runs \("):
        async with record_named("nowhere", None, None):
            pass
    with pytest.raises(ConfigError, match=r"no rollout is called 'old-0' in .*new"):
        async with record_named("old-0", None, "new", kinds=["rollout"]):
            pass


def test_close_matches_begin_with_what_was_given_or_are_spelt_like_it() -> None:
    ids = ["abcdef-1", "abcdef-2", "zzz", "abcdef-1"]
    assert close_matches("abc", ids) == ["abcdef-1", "abcdef-2"]
    assert close_matches("abcdeg-1", ids) == ["abcdef-1", "abcdef-2"]
    assert close_matches("", ids) == []


def test_a_word_that_is_not_known_names_the_nearest() -> None:
    assert one_of("runs", ["runs", "workers"], "what") == "runs"
    with pytest.raises(ConfigError, match=r"agl ls: 'run' is none of runs, workers; did you mean runs\?"):
        one_of("run", ["runs", "workers"], "agl ls:")
