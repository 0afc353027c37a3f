"""agl regrade: old and new rewards, side by side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from command_line import Agl
from recorded_folder import recorded_folder

from agl.cli.regrade import settings_given
from agl.errors import ConfigError
from agl.store.opening import store_to_read
from agl.store.sqlite import SqliteLightningStore
from agl.types import SpanQuery


@pytest.fixture
def run(in_folder: Path) -> Path:
    """A run whose rollouts 0, 2 and 4 have the rewards 0, 1 and 2; 3 failed, and one waits."""
    return asyncio.run(recorded_folder(in_folder, [0, 2, 3, 4], waiting=1))


def num_regrades(run: Path) -> int:
    async def count() -> int:
        async with store_to_read(str(run)) as store:
            return len((await store.query_spans(SpanQuery(name="agl.regrade"))).items)

    return asyncio.run(count())


def test_it_tells_what_changed_and_what_failed_and_writes_nothing(run: Path, agl: Agl) -> None:
    code, out, err = agl("regrade", "--grader", "mine.py:grade")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Grader      mine.py:grade",
        "Graded      2 rollouts, 0 of them have another reward now",
        "Mean        0.5 before, 0.5 now",
        "Failed      KeyError 1 (the grader; not in the mean)",
        "Not graded  failed 1, pending 1: their agents returned nothing",
        "",
        "one-3",
        "    KeyError: 'four'",
        "",
        "Nothing was written (--write keeps the new rewards)",
    ]
    assert num_regrades(run) == 0


def test_written_rewards_are_written_once(run: Path, agl: Agl) -> None:
    Path("other.py").write_text("def strict(task, least=1):\n    return 1.0 if task > least else 0.0\n")
    arguments = ["regrade", "--grader", "other.py:strict", "--set", "least=3", "--write"]
    code, out, _ = agl(*arguments, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["grader"], found["graded"], found["changed"], found["written"]) == (
        "other.py:strict",
        3,
        2,
        3,
    )
    assert [(one["rollout_id"], one["before"], one["after"]) for one in found["rollouts"]] == [
        ("one-0", 0.0, 0.0),
        ("one-1", 1.0, 0.0),
        ("one-3", 2.0, 1.0),
    ]
    code, out, _ = agl(*arguments)
    assert out.splitlines()[-1] == "0 new rewards written"
    assert "rollout  was  is\none-1      1   0\none-3      2   1\n" in out
    assert num_regrades(run) == 3


def test_runs_and_rollouts_are_named_by_id_and_a_run_by_its_folder(run: Path, agl: Agl) -> None:
    Path("one.py").write_text("def one(task):\n    return 1.0\n")

    def graded(*ids: str) -> int:
        code, out, err = agl("regrade", "--grader", "one.py:one", "--json", *ids)
        assert code == 0, err
        return int(json.loads(out)["graded"])

    assert graded("one-0", "one-3", "one-0") == 2
    assert graded("one") == graded("runs/one") == graded(str(run)) == 3
    assert graded("one", "--run-dir", "one") == 3
    assert graded("one-0", "one", "--run-dir", "one") == 3


def test_replays_are_graded_only_where_they_are_named(run: Path, agl: Agl) -> None:
    code, out, err = agl("replay", "one-1", "--json")
    assert code == 0, err
    replay = json.loads(out)["replay_id"]
    Path("one.py").write_text("def one(task):\n    return 1.0\n")
    assert json.loads(agl("regrade", "--grader", "one.py:one", "--json")[1])["graded"] == 3
    assert json.loads(agl("regrade", "--grader", "one.py:one", "--json", replay)[1])["graded"] == 1


def test_a_grader_that_always_fails_is_a_failure(run: Path, agl: Agl) -> None:
    code, out, err = agl("regrade", "--grader", "mine.py:grade", "one-3")
    assert code == 1
    assert "Mean        - before, - now" in out
    assert err == (
        "agl: --grader mine.py:grade gave no reward to any rollout (1 failures); the first: KeyError: 'four'\n"
    )


def test_reading_goes_on_beside_a_live_run_and_writing_does_not(run: Path, agl: Agl) -> None:
    async def live() -> list[tuple[int, str, str]]:
        async with SqliteLightningStore(str(run / "store.sqlite")):
            ways = (
                ["regrade", "--grader", "mine.py:grade"],
                ["regrade", "--grader", "mine.py:grade", "--write"],
            )
            return [await asyncio.to_thread(agl, *way) for way in ways]

    reading, writing = asyncio.run(live())
    assert reading[0] == 0
    assert (writing[0], writing[1]) == (1, "")
    assert "belongs to process" in writing[2]


def test_settings_are_json_or_text() -> None:
    assert settings_given(["a=1", "b=x y", 'c={"d": [1]}', "e="]) == {
        "a": 1,
        "b": "x y",
        "c": {"d": [1]},
        "e": "",
    }
    with pytest.raises(ConfigError, match="--set half: write NAME=VALUE"):
        settings_given(["half"])


@pytest.mark.parametrize("width", [80, 140])
def test_every_line_fits_the_terminal(
    run: Path, agl: Agl, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    Path("long.py").write_text(
        "def grade(task):\n    raise ValueError('\\x1b[2J' + 'so long a message ' * 20)\n"
    )
    code, out, _ = agl("regrade", "--grader", "long.py:grade")
    assert code == 1
    assert max(map(len, out.splitlines())) <= width
    assert all(line.isprintable() for line in out.splitlines())
