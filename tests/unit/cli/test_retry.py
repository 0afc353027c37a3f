"""agl retry: who executes what was asked for again, and the same here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from command_line import Agl
from recorded_folder import recorded_folder

from agl.store.opening import store_to_read
from agl.types import Rollout


@pytest.fixture
def run(in_folder: Path) -> Path:
    """A run with a rollout that succeeded, one that failed and one that waits."""
    return asyncio.run(recorded_folder(in_folder, [2, 3], waiting=1))


def rollout(run: Path, rollout_id: str) -> Rollout:
    async def look() -> Rollout:
        async with store_to_read(str(run)) as store:
            return await store.get_rollout_by_id(rollout_id)

    return asyncio.run(look())


def test_a_failed_rollout_is_asked_for_once_and_nobody_executes_it_in_a_runs_own_store(
    run: Path, agl: Agl
) -> None:
    first, again = agl("retry", "one-1"), agl("retry", "one-1")
    assert first[0] == again[0] == 0
    assert first[1].splitlines()[:2] == ["one-1  failed", "  one-1-retry-1  pending"]
    assert again[1].splitlines()[1] == "  one-1-retry-1  pending: asked for before"
    assert "on which no runner is at work: execute here and now with agl retry one-1 --here" in " ".join(
        first[1].split()
    )
    assert rollout(run, "one-1-retry-1").metadata == {"seed": 7, "retry_of": "one-1"}


def test_here_it_is_executed_at_once_with_the_settings_of_its_run(run: Path, agl: Agl) -> None:
    Path("fixed").touch()
    code, out, err = agl("retry", "one-1", "--here", "--json")
    assert code == 0, err
    (retried,) = json.loads(out)["retries"]
    assert retried["retry_id"] == "one-1-retry-1"
    assert (retried["status"], retried["reward"], retried["is_new"]) == ("succeeded", 1.5, True)
    new = rollout(run, "one-1-retry-1")
    assert (new.group_id, new.mode, new.metadata["retry_of"]) == ("g", "val", "one-1")
    assert new.run_id is not None
    assert new.run_id.startswith("retry-")
    assert rollout(run, "one-waits-0").status == "pending"


def test_here_takes_over_what_waits_for_a_runner(run: Path, agl: Agl) -> None:
    Path("fixed").touch()
    agl("retry", "one-1")
    code, out, _ = agl("retry", "one-1", "--here")
    assert (code, out) == (0, "one-1  failed\n  one-1-retry-2  succeeded, reward 1.5\n")
    assert rollout(run, "one-1-retry-1").status == "cancelled"


def test_a_retry_that_fails_again_says_why_and_fails(run: Path, agl: Agl) -> None:
    code, out, err = agl("retry", "one-1", "--here")
    assert (code, out.splitlines()[1:]) == (1, ["  one-1-retry-1  failed", "    ValueError: 3 is odd"])
    assert err == "agl: 1 of 1 retry failed; the first: ValueError: 3 is odd\n"


def test_what_succeeded_is_not_retried(run: Path, agl: Agl) -> None:
    code, out, err = agl("retry", "one-1", "one-0")
    assert (code, out) == (2, "")
    assert "rollout one-0 has succeeded: there is nothing to retry (agl replay runs it again)" in err
    code, out, _ = agl("retry", "one-waits-0")
    assert (code, out.splitlines()[0]) == (0, "one-waits-0  pending: it is open itself")


def test_settings_of_the_run_can_be_overridden_and_a_wrong_one_starts_nothing(run: Path, agl: Agl) -> None:
    code, out, err = agl("retry", "one-1", "--here", "agent.targett=x")
    assert (code, out) == (2, "")
    assert "agent.targett" in err
    code, _, err = agl("retry", "one-1", "agent.target=mine.py:agent")
    assert code == 2
    assert "agent.target=mine.py:agent: settings are for --here" in err


@pytest.mark.parametrize("width", [80, 140])
def test_every_line_fits_the_terminal(
    run: Path, agl: Agl, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    Path("long.py").write_text(
        "def agent(task):\n    raise ValueError('\\x1b[2J' + 'so long a message ' * 20)\n"
    )
    waits, fails = agl("retry", "one-1"), agl("retry", "one-1", "--here", "agent.target=long.py:agent")
    assert (waits[0], fails[0]) == (0, 1)
    for _, out, _ in (waits, fails):
        assert max(map(len, out.splitlines())) <= width
        assert all(line.isprintable() for line in out.splitlines())
