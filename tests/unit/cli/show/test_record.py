"""agl show: whatever an id is of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import Agl
from listed_records import NOON, listed_store

from agl.types import RolloutRequest


@pytest.fixture
async def folder(in_folder: Path) -> Path:
    """Two runs: ``one`` with a rollout, a worker, resources and two numbers, and a newer one without anything."""
    for begun, name in enumerate(("one", "two")):
        folder = in_folder / "runs" / name
        folder.mkdir(parents=True)
        (folder / "settings.yaml").write_text("name: demo\n")
        os.utime(folder / "settings.yaml", (NOON + begun, NOON + begun))
        store, _ = listed_store(folder / "store.sqlite")
        async with store:
            await store.add_run(name="demo", run_id=name, command="train", settings={"seed": 5})
            if name == "one":
                await store.register_worker("worker-1")
                await store.add_resources({"prompt": "x"}, run_id="one", resources_id="rs-one")
                await store.start_rollout(RolloutRequest(task=1, rollout_id="one-0", run_id="one"))
                await store.add_metrics("one", 1, {"train/reward": 0.5})
                await store.add_metrics("one", 2, {"train/reward": 1.0})
    return in_folder


@pytest.mark.parametrize(
    ("wanted", "kind", "first"),
    [
        ("one-0", "rollout", "Rollout     one-0"),
        ("at-1", "rollout", "Rollout     one-0"),
        ("one", "run", "Run         one"),
        ("runs/one", "run", "Run         one"),
        ("rs-one", "resources", "Resources   rs-one"),
        ("worker-1", "worker", "Worker          worker-1"),
    ],
)
def test_an_id_of_any_kind_shows_its_record(
    agl: Agl, folder: Path, wanted: str, kind: str, first: str
) -> None:
    code, out, err = agl("show", wanted)
    assert (code, err, out.splitlines()[0]) == (0, "", first)
    code, out, err = agl("show", wanted, "--json")
    assert (code, err, json.loads(out)["kind"]) == (0, "", kind)


def test_the_newest_run_is_shown_where_nothing_is_named(agl: Agl, folder: Path) -> None:
    assert json.loads(agl("show", "--json")[1])["run"]["run_id"] == "two"
    assert json.loads(agl("show", "--run-dir", "one", "--json")[1])["run"]["run_id"] == "one"


def test_a_run_has_its_settings_and_numbers_from_its_store(agl: Agl, folder: Path) -> None:
    values = json.loads(agl("show", "one", "--json")[1])
    assert values["settings"] == {"seed": 5}
    assert values["metrics"] == {"train/reward": [[1, 0.5], [2, 1.0]]}
    assert json.loads(agl("show", "one", "--run-dir", "one", "--json")[1])["rollouts"]["preparing"] == 1


def test_a_run_whose_records_are_elsewhere_shows_what_its_folder_has(agl: Agl, folder: Path) -> None:
    (folder / "runs/two/store.sqlite").unlink()
    code, out, _ = agl("show", "two")
    assert code == 0
    assert "name their store by --store-url" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lost"], "is called 'lost' in any run under runs"),
        (["one-1"], "did you mean one-0"),
        (["one-0", "--attempt", "5"], "has no such attempt; it has 1 (at-1)"),
        (["one", "--attempt", "1"], "that id is of a run"),
        (["rs-one", "--attempt", "1"], "that id is of resources"),
        (["one-0", "--metric", "x"], "--metric x: numbers are of runs"),
        (["one", "--metric", "x"], "it has train/reward"),
        (["--store-url", "http://127.0.0.1:1"], "give an id, too"),
        (["--run-dir", "lost"], "there is no run lost"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(agl: Agl, folder: Path, arguments: list[str], message: str) -> None:
    if arguments == ["one-1"]:
        arguments = [*arguments, "--run-dir", "one"]
    code, out, err = agl("show", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_without_any_run_it_says_so(agl: Agl, in_folder: Path) -> None:
    code, _, err = agl("show")
    assert (code, err.endswith("has no run: give an id, or a folder with a settings.yaml\n")) == (2, True)
