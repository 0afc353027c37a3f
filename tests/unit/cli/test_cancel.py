"""agl cancel: what each rollout was and is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from command_line import Agl
from recorded_folder import recorded_folder

from agl.store.sqlite import SqliteLightningStore


@pytest.fixture
def run(in_folder: Path) -> Path:
    """A run with an ended rollout and three that wait."""
    return asyncio.run(recorded_folder(in_folder, [2], waiting=3))


def test_a_rollout_is_cancelled_once_and_said_to_be_so_from_then_on(run: Path, agl: Agl) -> None:
    first = agl("cancel", "one-waits-0", "one-0")
    again = agl("cancel", "one-waits-0")
    assert first == (
        0,
        "rollout      was        is\n"
        "one-waits-0  pending    cancelled\n"
        "one-0        succeeded  succeeded  has ended, and stays so\n"
        "\n"
        "1 rollout cancelled, 1 had ended before\n",
        "",
    )
    assert (again[0], again[1].splitlines()[1]) == (
        0,
        "one-waits-0  cancelled  cancelled  was cancelled before",
    )


def test_nothing_is_cancelled_when_one_of_the_ids_is_unknown(run: Path, agl: Agl) -> None:
    code, out, err = agl("cancel", "one-waits-0", "one-watts-1")
    assert (code, out) == (2, "")
    assert "no rollout is called 'one-watts-1'" in err
    assert "did you mean one-waits-1" in err
    code, out, _ = agl("cancel", "one-waits-0", "--json")
    assert json.loads(out)["rollouts"] == [
        {"rollout_id": "one-waits-0", "was": "pending", "now": "cancelled", "changed": True}
    ]


def test_the_open_rollouts_of_a_run_are_cancelled_when_somebody_says_yes(run: Path, agl: Agl) -> None:
    code, out, err = agl("cancel", "--run", "one")
    assert (code, out) == (2, "")
    assert "3 rollouts of run one (3 pending) would be cancelled: add --yes" in err
    code, out, _ = agl("cancel", "--run", "one", "--yes")
    assert (code, out.splitlines()[-1]) == (0, "3 rollouts cancelled")
    code, out, _ = agl("cancel", "--run", "one", "--yes")
    assert (code, out) == (0, "No rollout of the run is open: there is nothing to cancel.\n")


def test_the_store_of_a_live_run_is_left_alone_and_the_way_is_told(run: Path, agl: Agl) -> None:
    async def live() -> tuple[int, str, str]:
        async with SqliteLightningStore(str(run / "store.sqlite")):
            return await asyncio.to_thread(agl, "cancel", "one-waits-0")

    code, out, err = asyncio.run(live())
    assert (code, out) == (1, "")
    assert "store.sqlite belongs to process" in err
    assert "stop it with Ctrl-C first, or serve the records of runs with `agl store`" in err
