"""agl train: a folder for the run, settings in it, and going on with what is in it."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
import yaml
from command_line import Agl


@pytest.fixture
def fake(agl: Agl, recipes: Path) -> Agl:
    """``agl train`` with the recipe that only pretends."""

    def run(*arguments: str) -> tuple[int, str, str]:
        return agl("train", "--config-dir", recipes, "+recipe=fake", *arguments)

    return run


def fitted(folder: Path) -> dict[str, object]:
    return json.loads((folder / "fitted.json").read_text())


def test_the_composed_settings_are_printed_and_nothing_is_made(agl: Agl, fake: Agl) -> None:
    code, out, _ = fake("--cfg", "seed=5")
    assert code == 0
    assert yaml.safe_load(out)["seed"] == 5
    assert not Path("runs").exists()
    code, out, _ = agl("train", "--cfg")
    assert code == 0
    assert yaml.safe_load(out)["policy"]["path"] == "???"


def test_a_run_ends_with_its_report_and_leaves_everything_in_its_folder(fake: Agl) -> None:
    assert fake("--run-dir", "here", "seed=5") == (0, "it is done\nall of it\n", "")
    assert fitted(Path("here"))["resume"] is False
    assert fitted(Path("here"))["seed"] == 5
    assert yaml.safe_load(Path("here/settings.yaml").read_text())["seed"] == 5
    assert "INFO agl.fake: fitting" in Path("here/agl.log").read_text()
    assert Path("here/ending.txt").read_text() == "it is done\nall of it\n"


def test_the_default_folder_is_dated_and_never_shared(fake: Agl) -> None:
    assert [fake()[0], fake()[0]] == [0, 0]
    folders = sorted(Path("runs").iterdir())
    assert len(folders) == 2
    assert all("-fake" in folder.name for folder in folders)


def test_what_refers_to_the_run_folder_follows_it(fake: Agl) -> None:
    fake("--run-dir", "here", "+store_path=${run_dir}/store.sqlite")
    assert fitted(Path("here"))["store_path"] == "here/store.sqlite"


def test_a_folder_that_holds_a_run_is_refused(fake: Agl) -> None:
    fake("--run-dir", "here")
    code, _, err = fake("--run-dir", "here")
    assert (code, err) == (
        2,
        "agl: run_dir here holds a run; go on with --resume here, or choose another folder\n",
    )


def test_the_settings_of_the_record_hold_no_secret(fake: Agl) -> None:
    fake("--run-dir", "here", "+api_key=sk-123456")
    assert fitted(Path("here"))["api_key"] == "***"
    assert "sk-123456" not in Path("here/settings.yaml").read_text()


def test_a_value_that_a_constructor_refuses_leaves_no_folder(fake: Agl) -> None:
    code, _, err = fake("--run-dir", "here", "ending=refused")
    assert (code, err) == (2, "agl: ending must not be refused\n")
    assert not Path("here").exists()


def test_a_run_that_could_not_begin_leaves_no_folder(fake: Agl) -> None:
    code, _, err = fake("--run-dir", "here", "ending='no tasks'")
    assert (code, err) == (2, "agl: data has no tasks\n")
    assert not Path("here").exists()


def test_a_run_is_resumed_from_its_own_settings_with_overrides_on_top(agl: Agl, fake: Agl) -> None:
    fake("--run-dir", "runs/mine", "seed=5", "ending=interrupt")
    code, out, err = agl("train", "--resume", "mine", "ending=done")
    assert (code, out, err) == (0, "it is done\nall of it\n", "")
    assert fitted(Path("runs/mine"))["resume"] is True
    assert fitted(Path("runs/mine"))["seed"] == 5
    assert yaml.safe_load(Path("runs/mine/settings.yaml").read_text())["ending"] == "done"


def test_resume_alone_takes_the_newest_run_that_has_not_ended(agl: Agl, fake: Agl) -> None:
    fake("--run-dir", "runs/old", "ending=interrupt")
    fake("--run-dir", "runs/new", "ending=interrupt")
    fake("--run-dir", "runs/ended")
    os.utime("runs/old/settings.yaml", (1, 1))
    assert agl("train", "--resume", "ending=done")[0] == 0
    assert fitted(Path("runs/new"))["resume"] is True
    assert fitted(Path("runs/old"))["resume"] is False


def test_a_run_that_was_moved_goes_on_in_its_new_place(agl: Agl, fake: Agl) -> None:
    fake("--run-dir", "here", "ending=interrupt", "+store_path=${run_dir}/store.sqlite")
    Path("here").rename("there")
    assert agl("train", "--resume", "there", "ending=done")[0] == 0
    assert fitted(Path("there"))["store_path"] == "there/store.sqlite"


def test_logging_is_as_before_when_the_command_has_ended(fake: Agl) -> None:
    before = (logging.getLogger().level, list(logging.getLogger().handlers))
    fake("--run-dir", "here")
    assert (logging.getLogger().level, list(logging.getLogger().handlers)) == before


def test_a_url_of_a_store_is_short_for_two_overrides(agl: Agl) -> None:
    url = "http://127.0.0.1:4747"
    code, out, _ = agl("train", "--cfg", "--run-dir", "here", "--store-url", url)
    assert code == 0
    store = yaml.safe_load(out)["store"]
    assert (store["_target_"], store["url"]) == ("agl.store.client.LightningStoreClient", url)
    assert agl("train", "--cfg", "--run-dir", "here", "store=client", f"store.url={url}")[1] == out


def test_a_resumed_run_is_not_sent_to_another_kind_of_store(agl: Agl, fake: Agl) -> None:
    fake("--run-dir", "here", "ending=interrupt")
    code, _, err = agl("train", "--resume", "here", "--store-url", "http://127.0.0.1:4747")
    assert (code, err.count("\n")) == (2, 1)
    assert "this run has its records elsewhere" in err


def test_the_role_of_a_runner_is_for_scripts(fake: Agl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "runner")
    code, _, err = fake("--run-dir", "here")
    assert code == 2
    assert "start `agl run`" in err
    assert not Path("here").exists()
