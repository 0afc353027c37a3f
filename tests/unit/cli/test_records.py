"""Which records a command is about."""

import os
from pathlib import Path

import pytest

from agl.cli.records import file_of_records, newest_run_folder, records_to_change, records_to_read
from agl.errors import ConfigError
from agl.store.client import LightningStoreClient


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, *, begun: float, store: bool = True) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: x\n")
    os.utime(folder / "settings.yaml", (begun, begun))
    if store:
        (folder / "store.sqlite").touch()
    return folder


def test_without_a_name_it_is_the_newest_run_that_keeps_its_own_records() -> None:
    run("old", begun=1)
    newest = run("new", begun=2)
    run("served", begun=3, store=False)
    assert newest_run_folder() == newest
    assert file_of_records(None) == newest / "store.sqlite"


@pytest.mark.parametrize("name", ["old", "runs/old", "runs/old/store.sqlite"])
def test_a_run_is_named_by_its_folder_its_name_or_its_stores_file(name: str) -> None:
    run("old", begun=1)
    run("new", begun=2)
    assert file_of_records(name) == Path("runs/old/store.sqlite")


def test_where_there_is_no_run_both_ways_to_name_one_are_said() -> None:
    with pytest.raises(
        ConfigError, match=r"no run with records: name a run with --run-dir, or .* --store-url"
    ):
        records_to_read(None, None)
    with pytest.raises(ConfigError, match=r"no run lost: neither lost nor runs/lost has a store\.sqlite"):
        records_to_change(None, "lost")


def test_a_run_whose_records_are_served_says_so() -> None:
    run("served", begun=1, store=False)
    with pytest.raises(ConfigError, match=r"records of runs/served are not in its folder: .* --store-url"):
        records_to_read(None, "served")


def test_a_url_is_a_client_with_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_STORE_TOKEN", "secret-token-of-the-store")
    store = records_to_read("http://127.0.0.1:1", None)
    assert isinstance(store, LightningStoreClient)
    assert "secret" not in repr(store)
    with pytest.raises(ConfigError, match="two stores: leave one out"):
        records_to_change("http://127.0.0.1:1", "here")
