"""Searches for prompts that are killed in the middle: when, and whether nothing is lost or paid for twice."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from train_processes import metrics_of


def rollouts(run_dir: Path) -> list[dict[str, Any]]:
    """What the store of the run holds, beside whoever works with it."""
    place = f"file:{run_dir / 'store.sqlite'}?mode=ro"
    with closing(sqlite3.connect(place, uri=True, timeout=10)) as db:
        db.row_factory = sqlite3.Row
        rows = db.execute("SELECT rollout_id, status, metadata, reward, num_attempts FROM rollout").fetchall()
    return [{**dict(row), "metadata": json.loads(row["metadata"])} for row in rows]


def kill_when(process: subprocess.Popen[str], run_dir: Path, ripe: Callable[[], bool]) -> None:
    """Kill the process as soon as its run looks like that."""
    deadline = time.monotonic() + 200
    try:
        while not ((run_dir / "metrics.jsonl").is_file() and ripe()):
            assert time.monotonic() < deadline, "the run never looked like that"
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def asking(run_dir: Path, kind: str) -> bool:
    """Whether a question of that kind has been asked; its waiting may be too short to be seen."""
    return any(f"-ask-{kind}-" in row["rollout_id"] for row in rollouts(run_dir))


def selecting(run_dir: Path) -> bool:
    """Whether new prompts are tried beside the first, for a moment at least."""
    return len({row["metadata"].get("candidate") for row in rollouts(run_dir)} - {None}) > 1


def searched(run_dir: Path) -> dict[int, dict[str, Any]]:
    """The numbers of each round but for what the calls took: those of a killed process may be paid for in vain."""
    return {
        step: {name: value for name, value in values.items() if name not in ("spent/calls", "spent/tokens")}
        for step, values in metrics_of(run_dir).items()
    }


def candidates(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "prompts" / "candidates.jsonl").read_text().splitlines()]


def plain(row: dict[str, Any]) -> tuple[str, str, Any]:
    """A rollout without the marks of having been begun before."""
    return row["rollout_id"].replace("-again", ""), row["status"], row["reward"]


def check_as_if_nothing_had_happened(run_dir: Path, uninterrupted: Path, finished_before: set[str]) -> None:
    """Check that the resumed run is the run that nobody disturbed, and used what had been paid for."""
    assert candidates(run_dir) == candidates(uninterrupted)
    assert searched(run_dir) == searched(uninterrupted)
    whole, resumed = rollouts(uninterrupted), rollouts(run_dir)
    kept = [row for row in resumed if "abandoned" not in row["metadata"]]
    assert sorted(plain(row) for row in kept) == sorted(plain(row) for row in whole)
    assert Counter(row["num_attempts"] for row in kept) == Counter(row["num_attempts"] for row in whole)
    assert finished_before <= {row["rollout_id"] for row in kept}  # what was paid for is used
