"""What `agl --help` costs beside its parser: `python benchmarks/cli.py`.

The budget is 3 times `python -c "import typer"`. Both in turn, so that a busy machine slows both; the best of each
counts. Writes benchmarks/results/cli.json.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 7


def seconds(*arguments: str) -> float:
    """Return how long a Python process with these arguments runs."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure, print, write."""
    pairs = [(seconds("-c", "import typer"), seconds("-m", "agl", "--help")) for _ in range(ROUNDS)]
    parser, help_ = min(first for first, _ in pairs), min(second for _, second in pairs)
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "import_typer_seconds": parser,
        "agl_help_seconds": help_,
        "ratio": help_ / parser,
        "budget": 3.0,
    }
    print(f"import typer {parser:.3f} s, agl --help {help_:.3f} s: {help_ / parser:.2f} times (budget 3)")
    target = Path(__file__).parent / "results" / "cli.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
