"""What the benchmarks say beside their numbers: the machine, and how a file of results is written."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=FOLDER
    )
    return {
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of times, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3),
        "p99_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3, 3),
    }


def write(name: str, conditions: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Write results/NAME.json."""
    target = FOLDER / "results" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps({"machine": dict(conditions), "results": results}, indent=2)
    target.write_text(text + "\n", encoding="utf-8")
