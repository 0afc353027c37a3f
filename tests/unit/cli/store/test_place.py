"""Which store a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.cli.store.place import existing_store, file_of, store_settings
from agl.errors import ConfigError


def test_options_replace_root_settings_and_are_taken_literally(in_folder: Path) -> None:
    settings = store_settings(["port=1", "host=h"], config_dir=None, port=2, host=None, token="a${port}b")
    assert (settings.values["port"], settings.values["host"]) == (2, "h")
    assert settings.values["token"] == "a${port}b"


def test_a_file_that_is_not_there_is_refused_rather_than_made(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no store in x\.sqlite"):
        existing_store(["store.path=x.sqlite"], store_url=None, token=None, config_dir=None)
    assert list(in_folder.iterdir()) == []


def test_a_store_is_built_and_not_opened(in_folder: Path) -> None:
    Path("x").touch()
    store = existing_store(["store.path=x"], store_url=None, token=None, config_dir=None)
    assert store.location == "x"
    assert [path.name for path in in_folder.iterdir()] == ["x"]
    memory = existing_store(["store=memory"], store_url=None, token=None, config_dir=None)
    assert memory.location == "memory"


def test_a_url_is_the_client_of_that_store(in_folder: Path) -> None:
    store = existing_store([], store_url="http://127.0.0.1:1/", token="${a}", config_dir=None)
    assert store.location == "http://127.0.0.1:1"


def test_a_file_is_known_from_the_settings(in_folder: Path) -> None:
    assert file_of(store_settings(["store.path=x"], config_dir=None)) == Path("x")
    assert file_of(store_settings(["store=memory"], config_dir=None)) is None


def test_a_url_and_overrides_exclude_each_other(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match="store=memory: --store-url says which store"):
        existing_store(["store=memory"], store_url="http://127.0.0.1:1", token=None, config_dir=None)
