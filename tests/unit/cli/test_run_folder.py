"""A run's folder: claimed once, found again, left alone while someone is at work in it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agl.cli.run_folder import abandon, claim, locked, logged, run_folder, to_resume, unused
from agl.errors import ConfigError, RunStoppedError


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    assert unused(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").mkdir()
    assert unused(tmp_path / "run") == tmp_path / "run-3"


def test_an_empty_folder_may_be_claimed_and_a_run_may_not(tmp_path: Path) -> None:
    claim(tmp_path / "a" / "b")
    claim(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "settings.yaml").touch()
    with pytest.raises(ConfigError, match="holds a run"):
        claim(tmp_path / "a" / "b")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made: "):
        claim(tmp_path / "file" / "run")
    with pytest.raises(ConfigError, match="cannot be made: "):
        claim(tmp_path / "file")


def test_only_a_folder_without_results_is_abandoned(tmp_path: Path) -> None:
    for name in ("begun", "worked"):
        claim(tmp_path / name)
        for file in ("settings.yaml", "agl.log", "store.sqlite", "store.sqlite-wal"):
            (tmp_path / name / file).touch()
    (tmp_path / "worked" / "metrics.jsonl").touch()
    abandon(tmp_path / "begun")
    abandon(tmp_path / "worked")
    assert not (tmp_path / "begun").exists()
    assert (tmp_path / "worked" / "settings.yaml").exists()
    assert (tmp_path / "worked" / "store.sqlite").exists()


def test_what_lay_in_an_abandoned_folder_before_is_kept(tmp_path: Path) -> None:
    for name in ("store.sqlite", "notes.txt"):
        (tmp_path / name).touch()
    before = claim(tmp_path)
    (tmp_path / "settings.yaml").touch()
    abandon(tmp_path, before=before)
    assert {path.name for path in tmp_path.iterdir()} == {"store.sqlite", "notes.txt"}


def test_an_abandoned_run_takes_an_empty_folder_of_runs_with_it(in_folder: Path) -> None:
    claim(Path("runs/one"))
    claim(Path("runs/two"))
    abandon(Path("runs/one"))
    assert [path.name for path in Path("runs").iterdir()] == ["two"]
    abandon(Path("runs/two"))
    assert not Path("runs").exists()


def test_a_run_is_found_by_folder_or_by_name(in_folder: Path) -> None:
    for folder in (Path("elsewhere"), Path("runs/mine")):
        folder.mkdir(parents=True)
        (folder / "settings.yaml").touch()
    assert to_resume("elsewhere") == Path("elsewhere")
    assert to_resume("mine") == Path("runs/mine")
    with pytest.raises(
        ConfigError, match=r"there is no run yours: neither yours nor runs/yours has a settings\.yaml"
    ):
        to_resume("yours")


def test_two_commands_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ConfigError, match="another agl is at work in"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_an_expected_error_is_in_the_log_without_a_traceback(tmp_path: Path) -> None:
    def stop() -> None:
        with logged(tmp_path):
            logging.getLogger("agl.x").info("working")
            raise RunStoppedError("enough")

    with pytest.raises(RunStoppedError):
        stop()
    text = (tmp_path / "agl.log").read_text()
    assert "INFO agl.x: working" in text
    assert "enough" in text
    assert "Traceback" not in text


def test_a_run_is_named_by_its_folder_or_its_name(in_folder: Path) -> None:
    folder = Path("runs/one")
    folder.mkdir(parents=True)
    (folder / "settings.yaml").touch()
    assert run_folder("one") == run_folder("runs/one") == folder
    assert (run_folder("two"), run_folder(None), run_folder("")) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("2026-12-01_00-24-32-tickets", "2026-12-01_00-24-32-tickets"),
        ('a:b?<c>|"d"*\\e\x01', "a_b__c___d___e_"),
        ("ends. .", "ends"),
    ],
)
def test_a_runs_folder_can_be_copied_to_windows(tmp_path: Path, name: str, legal: str) -> None:
    assert unused(tmp_path / name) == tmp_path / legal
