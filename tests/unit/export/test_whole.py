"""Files and folders appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agl.errors import AglError, ConfigError, StoreUnavailableError
from agl.export.whole import appearing


def test_a_file_or_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    with appearing(tmp_path / "deep" / "a", force=False) as partial:
        partial.write_text("x")
        assert not (tmp_path / "deep" / "a").exists()
    with appearing(tmp_path / "b", force=False) as partial:
        partial.mkdir()
        (partial / "c").write_text("y")
    assert (tmp_path / "deep" / "a").read_text() == "x"
    assert (tmp_path / "b" / "c").read_text() == "y"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "deep"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreUnavailableError("gone"), ValueError("x")])
def test_what_fails_leaves_nothing_and_the_old_as_it_was(tmp_path: Path, error: BaseException) -> None:
    old = tmp_path / "a"
    old.write_text("old")

    def fails() -> None:
        with appearing(old, force=True) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fails()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert old.read_text() == "old"


def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(AglError, match="a cannot be written: No space left on device"),
        appearing(tmp_path / "a", force=False),
    ):
        raise full


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_there_is_only_replaced_by_force(tmp_path: Path, kind: str) -> None:
    old = tmp_path / "a"
    if kind == "file":
        old.write_text("old")
    else:
        old.mkdir()
        (old / "b").touch()
    with (
        pytest.raises(ConfigError, match="a is there already: give another --out, or --force"),
        appearing(old, force=False),
    ):
        raise AssertionError("not reached")
    with appearing(old, force=True) as partial:
        partial.mkdir()
        (partial / "new").touch()
    assert [path.name for path in old.iterdir()] == ["new"]
    with appearing(old, force=True) as partial:
        partial.write_text("file again")
    assert old.read_text() == "file again"


def test_the_folder_that_one_is_in_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="the folder that you are in"), appearing(tmp_path, force=True):
        raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        ("settings.yaml", "settings.yaml"),
        ("store.sqlite", "store.sqlite"),
        ("one/settings.yaml", "one/"),
        ("src/main.py", "src/"),
    ],
)
def test_a_folder_that_no_export_made_is_never_replaced(tmp_path: Path, inside: str, named: str) -> None:
    file = tmp_path / "runs" / inside
    file.parent.mkdir(parents=True)
    file.write_text("dear")
    with (
        pytest.raises(ConfigError, match=f"runs is a folder with other things than an export in it .{named}"),
        appearing(tmp_path / "runs", force=True),
    ):
        raise AssertionError("not reached")
    assert file.read_text() == "dear"


def test_a_policy_with_folders_in_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "model" / "additional_chat_templates").mkdir(parents=True)
    (tmp_path / "model" / "config.json").touch()
    with appearing(tmp_path / "model", force=True) as partial:
        partial.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]


@pytest.mark.parametrize("force", [True, False])
def test_a_pipe_or_device_is_never_replaced(tmp_path: Path, *, force: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with (
            pytest.raises(ConfigError, match="is neither a file nor a folder: give another --out"),
            appearing(path, force=force),
        ):
            raise AssertionError("not reached")
    assert pipe.is_fifo()


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="cannot be made: File name too long"),
        appearing(tmp_path / ("a" * 300), force=False),
    ):
        raise AssertionError("not reached")


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "a").symlink_to(tmp_path / "kept")
    with appearing(tmp_path / "a", force=True) as partial:
        partial.write_text("new")
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "kept" / "file").is_file()


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with (
        pytest.raises(ConfigError, match=r"a/b cannot be made: .*a is not a folder"),
        appearing(tmp_path / "a" / "b", force=False),
    ):
        raise AssertionError("not reached")
