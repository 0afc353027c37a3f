"""Real ``agl eval`` processes, and an agent for them that needs no model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

AGENT = '''
import os
from pathlib import Path

async def agent(task):
    """Rewards the task's number; notes that it ran; waits for a file where the task names one."""
    print("said by the agent")
    with Path("ran").open("a") as file:
        file.write(f"{task['n']}\\n")
    if task["n"] in [int(n) for n in os.environ.get("FAILS", "").split()]:
        raise ValueError("cannot do it")
    if "wait" in task and not Path("go").exists():
        import asyncio
        await asyncio.sleep(60)
    shift = float(os.environ.get("SHIFT", "0"))
    return {"reward": min(1.0, task["n"] % 2 + shift), "form": 0.5}
'''


def light_folder(folder: Path, *, num_tasks: int = 6, waits: bool = False) -> Path:
    """A folder with that agent and its tasks; the last of them waits, if it should."""
    (folder / "mine.py").write_text(AGENT)
    rows = [f'{{"n": {n}{", " if waits and n == num_tasks - 1 else ""}' for n in range(num_tasks)]
    rows = [f'{row}"wait": 1}}' if row.endswith(", ") else f"{row}}}" for row in rows]
    (folder / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    return folder


LIGHT = [
    "agent.target=mine.py:agent",
    "data=jsonl",
    "data.train=tasks.jsonl",
    "data.val=tasks.jsonl",
    "name=light",
]
"""Overrides for it; files of the working directory need no trust."""


def start_eval(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start ``agl eval`` in that folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "agl", "eval", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100", **environment},
    )


def run_eval(*arguments: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """Run it to its end; return exit code, stdout and stderr."""
    process = start_eval(*arguments, cwd=cwd, **environment)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err
