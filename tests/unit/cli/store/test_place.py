"""Which store a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.cli.store.place import existing_place, store_settings
from agl.errors import ConfigError


def test_options_replace_root_settings_and_are_taken_literally(in_folder: Path) -> None:
    settings = store_settings(["port=1", "host=h"], config_dir=None, port=2, host=None, token="a${port}b")
    assert (settings.values["port"], settings.values["host"]) == (2, "h")
    assert settings.values["token"] == "a${port}b"


def test_a_file_that_is_not_there_is_refused_rather_than_made(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no store in x\.sqlite"):
        existing_place(["store.path=x.sqlite"], store_url=None, token=None, config_dir=None)
    assert list(in_folder.iterdir()) == []


def test_the_size_of_a_file_counts_what_is_beside_it(in_folder: Path) -> None:
    Path("x").write_bytes(b"12345")
    Path("x-wal").write_bytes(b"678")
    place = existing_place(["store.path=x"], store_url=None, token=None, config_dir=None)
    assert (place.file, place.size_bytes()) == (Path("x"), 8)
    assert existing_place(["store=memory"], store_url=None, token=None, config_dir=None).size_bytes() is None


def test_a_url_and_overrides_exclude_each_other(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match="store=memory: --store-url says which store"):
        existing_place(["store=memory"], store_url="http://127.0.0.1:1", token=None, config_dir=None)
