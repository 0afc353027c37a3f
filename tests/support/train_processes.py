"""Real ``agl train`` processes on the small SQL recipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SMALL = [
    "+recipe=ppo_sql",
    "algorithm.iterations=4",
    "algorithm.tasks_per_iteration=4",
    "algorithm.group_size=2",
    "algorithm.evaluate_every=2",
    "algorithm.save_every=2",
    "data.num_val=6",
    "metrics.console=plain",
]
"""A whole run of four small iterations."""
MEASURED_TIME = ("time/", "speed/", "update/seconds")
"""Metrics that are clock readings, and so differ between equal runs."""


def start_train(run_dir: Path, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start ``agl train`` as its own process."""
    command = [sys.executable, "-m", "agl", "train", "--run-dir", str(run_dir), *arguments]
    return _start(command, cwd)


def resume_train(run_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start ``agl train --resume`` on that run."""
    return _start([sys.executable, "-m", "agl", "train", "--resume", str(run_dir), *arguments], None)


def _start(command: list[str], cwd: Path | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"},
    )


def finished(process: subprocess.Popen[str], *, timeout: float = 240) -> tuple[int, str, str]:
    """Wait for the process; return exit code, stdout and stderr."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def metrics_of(run_dir: Path) -> dict[int, dict[str, Any]]:
    """Return the metrics of each iteration, clock readings left out."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {
        line["step"]: {
            name: value for name, value in line.items() if "/" in name and not name.startswith(MEASURED_TIME)
        }
        for line in lines
    }


def wait_for_iteration(run_dir: Path, iteration: int, *, timeout: float = 200) -> None:
    """Return once metrics.jsonl has that iteration."""
    deadline = time.monotonic() + timeout
    file = run_dir / "metrics.jsonl"
    while time.monotonic() < deadline:
        if file.is_file() and f'"step":{iteration},' in file.read_text().replace(" ", ""):
            return
        time.sleep(0.02)
    raise AssertionError(f"no iteration {iteration} within {timeout} s")
