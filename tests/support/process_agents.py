"""Agents for runner processes: what they do is asked by the task."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any


async def obedient(task: dict[str, Any]) -> float:
    """Return the reward asked for, after what else is asked.

    ``started``: a file made when it begins, with the process id in it; ``release``: a file waited for; ``program``: a
    file for the process id of a program that it starts and does not end; ``kill``: a signal to its own process;
    ``say``: a line to print.
    """
    if "say" in task:
        print(task["say"])  # noqa: T201 - that is what is tested
    if "program" in task:
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
        Path(task["program"]).write_text(str(program.pid))
    if "started" in task:
        begun = Path(task["started"])
        begun.with_suffix(".new").write_text(str(os.getpid()))
        begun.with_suffix(".new").rename(begun)
    if "kill" in task:
        os.kill(os.getpid(), signal.Signals[task["kill"]])
    while "release" in task and not Path(task["release"]).exists():  # noqa: ASYNC110 - a file tells of nothing
        await asyncio.sleep(0.02)
    return float(task.get("reward", 1.0))


def blocking(task: dict[str, Any]) -> float:
    """The same in a thread."""
    return asyncio.run(obedient(task))
