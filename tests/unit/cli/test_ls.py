"""agl ls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Agl
from listed_records import listed_store

from agl.types import RolloutRequest


@pytest.fixture
async def folder(in_folder: Path) -> Path:
    """A run with two rollouts, a worker and resources."""
    folder = in_folder / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: demo\n")
    store, _ = listed_store(folder / "store.sqlite")
    async with store:
        await store.add_run(name="demo", run_id="one", command="train")
        await store.register_worker("worker-1")
        await store.add_resources({"prompt": "x"}, run_id="one")
        await store.enqueue_many_rollouts([RolloutRequest(task="\u00fc", run_id="one") for _ in range(2)])
    return folder


def test_every_list_is_a_table_and_one_json_document(agl: Agl, folder: Path) -> None:
    ids = {"runs": "run_id", "rollouts": "rollout_id", "workers": "worker_id", "resources": "resources_id"}
    for what, name in ids.items():
        code, out, err = agl("ls", what)
        assert (code, err) == (0, "")
        code, document, err = agl("ls", what, "--json")
        assert (code, err, document.isascii()) == (0, "", True)
        listed = json.loads(document)
        assert listed
        assert all(one[name] in out for one in listed)


def test_without_a_word_it_lists_the_runs_here_or_those_of_the_store_that_is_named(
    agl: Agl, folder: Path
) -> None:
    assert agl("ls", "--json")[1] == agl("ls", "runs", "--json")[1]
    assert json.loads(agl("ls", "--json")[1])[0]["run_dir"] == str(Path("runs/one"))
    assert json.loads(agl("ls", "--run-dir", "one", "--json")[1])[0]["run_dir"] is None


def test_where_there_is_nothing_it_says_how_to_begin(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("ls")
    assert (code, out.startswith("No runs under ")) == (0, True)
    assert "agl train begins one" in " ".join(out.split())
    assert agl("ls", "--json")[1] == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rolouts"], "did you mean rollouts?"),
        (
            ["runs", "--status", "failed"],
            "agl: --status chooses among rollouts: agl ls rollouts --status ...",
        ),
        (["workers", "--run", "x"], "--run chooses among rollouts"),
        (["rollouts", "--mode", "tset"], "did you mean test?"),
        (["rollouts", "--run", "onne"], "did you mean one?"),
        (["rollouts", "--run-dir", "lost"], "there is no run lost"),
        (["rollouts", "--run-dir", "one", "--store-url", "http://127.0.0.1:1"], "two stores: leave one out"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(agl: Agl, folder: Path, arguments: list[str], message: str) -> None:
    code, out, err = agl("ls", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
