"""agl logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import Agl
from listed_records import listed_store, made_span
from snapshots import WIDTHS, require_snapshot

from agl.cli.logs import follow, written_by
from agl.store.sqlite import SqliteStore
from agl.types import ErrorInfo, RolloutConfig, RolloutRequest
from agl.types import attributes as key


async def write(store: SqliteStore, number: int, attempt_id: str, stream: str, text: str) -> None:
    span = made_span(number, key.OUTPUT_SPAN, rollout_id="one-0", attempt_id=attempt_id)
    facts = {key.OUTPUT_STREAM: stream, key.OUTPUT_TEXT: text, key.OUTPUT_BYTES: len(text)}
    await store.add_span(span.model_copy(update={"attributes": facts}))


async def two_attempts(store: SqliteStore) -> None:
    """The first one failed and will be tried again; the second one is under way, and has written, too."""
    await store.add_run(name="demo", run_id="one")
    request = RolloutRequest(task=1, rollout_id="one-0", run_id="one", config=RolloutConfig(max_attempts=2))
    await store.start_rollout(request)
    await write(store, 1, "at-1", "log", "2026-09-21 14:13:20 INFO mine: beginning\n")
    await write(store, 2, "at-1", "stderr", "no\x1b[2J room\nat all\nfor this\n")
    await store.update_attempt("one-0", "at-1", status="failed", error=ErrorInfo(cause="X"))
    await store.start_attempt("one-0")
    await write(store, 3, "at-2", "stdout", f"{'a long line ' * 20}\nlast\n")


@pytest.fixture
async def folder(in_folder: Path) -> Path:
    folder = in_folder / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: demo\n")
    (folder / ".lock").touch()
    (folder / "agl.log").write_text("".join(f"line {number}\x1b[2J\n" for number in range(60)) + "cut")
    store, _ = listed_store(folder / "store.sqlite")
    async with store:
        await two_attempts(store)
    return folder


@pytest.mark.parametrize("width", WIDTHS)
async def test_what_all_attempts_wrote_is_printed_as_it_was(width: int) -> None:
    store, _ = listed_store()
    async with store:
        await two_attempts(store)
        written = await written_by(store, "one-0", None)
        assert [one.stream for one in await written_by(store, "one-0", "at-1")] == ["log", "stderr"]
    lines = [line for one in written for line in one.lines(0)]
    lines += [line for one in written for line in one.lines(1)]
    require_snapshot(f"logs_{width}", lines)  # lines of others are not broken: they are to be searched


def test_the_log_of_a_run_ends_with_its_last_lines(agl: Agl, folder: Path) -> None:
    code, out, err = agl("logs")
    assert (code, err) == (0, "")
    assert out.splitlines() == [*(f"line {number} [2J" for number in range(10, 60)), "cut"]
    assert agl("logs", "one", "-n", "1")[1].splitlines() == ["line 59 [2J", "cut"]
    assert len(agl("logs", "--run-dir", "runs/one", "--tail", "0")[1].splitlines()) == 61
    values = json.loads(agl("logs", "one", "--json", "-n", "1")[1])
    assert (values["kind"], values["lines"][-1]) == ("run", "cut")


def test_following_a_run_that_has_ended_ends(agl: Agl, folder: Path) -> None:
    code, out, _ = agl("logs", "one", "--follow", "-n", "1")
    assert (code, out.splitlines()) == (0, ["line 59 [2J", "cut"])


def test_what_a_rollout_wrote_is_printed_or_given_as_json(agl: Agl, folder: Path) -> None:
    code, out, err = agl("logs", "one-0", "-n", "1")
    assert (code, err) == (0, "")
    assert out.splitlines()[2:4] == [
        "== attempt 1 (at-1) stderr, 28 bytes, the last 1 of 3 lines",
        "for this",
    ]
    values = json.loads(agl("logs", "at-1", "--json")[1])
    assert [one["stream"] for one in values["output"]] == ["log", "stderr"]
    assert values["output"][1]["text"].endswith("for this\n")


async def test_following_a_rollout_shows_each_attempts_output_once_until_the_rollout_ends() -> None:
    store, _ = listed_store()
    shown: list[str] = []
    steps = [
        lambda: write(store, 4, "at-2", "stderr", "later\n"),
        lambda: store.update_attempt("one-0", "at-2", status="succeeded", reward=1.0),
    ]

    async def work(_: float) -> None:
        await steps.pop(0)()

    def show(lines: Sequence[str]) -> None:
        shown.append(lines[0].partition(",")[0])

    async with store:
        await two_attempts(store)
        await follow(store, "one-0", "at-1", 0, sleep=work, show=show)  # that attempt has ended
        assert shown == ["== attempt 1 (at-1) log", "== attempt 1 (at-1) stderr"]
        await follow(store, "one-0", None, 0, sleep=work, show=show)
    assert shown[2:] == [
        "== attempt 1 (at-1) log",
        "== attempt 1 (at-1) stderr",
        "== attempt 2 (at-2) stdout",
        "== attempt 2 (at-2) stderr",
    ]


def test_a_rollout_that_wrote_nothing_says_so(agl: Agl, in_folder: Path, folder: Path) -> None:
    assert agl("logs", "at-2", "--json")[0] == 0
    code, out, err = agl("logs", "one-9")
    assert (code, out) == (2, "")
    assert "did you mean one-0" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lost"], "no rollout, attempt or run is called 'lost'"),
        (["--follow", "--json"], "leave one out"),
        (["--run-dir", "lost"], "there is no run lost"),
        (["--store-url", "http://127.0.0.1:1"], "a store has no logs of runs"),
        (["one-0", "--run-dir", "lost"], "there is no run lost"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(agl: Agl, folder: Path, arguments: list[str], message: str) -> None:
    code, out, err = agl("logs", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_run_without_a_log_says_who_keeps_one(agl: Agl, folder: Path) -> None:
    (folder / "agl.log").unlink()
    code, _, err = agl("logs", "one")
    assert (code, "has no agl.log: only runs that the command line began" in err) == (2, True)


def test_without_any_run_it_says_what_to_give(agl: Agl, in_folder: Path) -> None:
    code, _, err = agl("logs")
    assert (code, "has no run: give a run's folder, or the id of a rollout" in err) == (2, True)
