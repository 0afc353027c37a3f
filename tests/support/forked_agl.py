"""``agl`` in processes that are forked from one that has imported everything: a start costs milliseconds, not seconds.

For tests of what a command says and does. What is imported, and variables that a library reads when it is imported,
need a process from scratch.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["agl.cli.app", "agl.learners.torch.learner", "peft", "openai", "pytest"])


def run_agl(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``agl`` in the folder, and return its exit code and what it said."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        process = FORKS.Process(target=_main, args=(list(arguments), folder, dict(os.environ), out, err))
        process.start()
        process.join(120)
        if process.exitcode is None:
            process.kill()
            process.join()
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read_text(), err.read_text())


def _main(arguments: list[str], folder: Path, environment: dict[str, str], out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(written, number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["agl", *arguments]
    from agl.cli.app import main

    main()
