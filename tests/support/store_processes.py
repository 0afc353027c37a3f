"""Real ``agl store`` processes on ports that the system chooses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

AGL = (sys.executable, "-m", "agl", "store")
LAST_LINE = "  connect "


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProcess:
    """An ``agl store`` that serves."""

    process: subprocess.Popen[str]
    url: str
    lines: Sequence[str]
    """What it said at its start."""

    def ended(self, *, timeout: float = 5.0) -> tuple[int, str, str]:
        """Wait for its end; return exit code, what else it said, and standard error."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@contextmanager
def served(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    agl: Sequence[str] = AGL,
    last_line: str = LAST_LINE,
) -> Generator[StoreProcess]:
    """Serve until the block ends; ``agl`` is the command, ``last_line`` begins the last line that it says at its start.

    The process is killed if it still runs at the end of the block.
    """
    command = [*agl, *([] if "--port" in arguments else ["--port", "0"]), *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            yield _started(process, last_line)
        finally:
            process.kill()


def _started(process: subprocess.Popen[str], last_line: str) -> StoreProcess:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(last_line):
            return StoreProcess(process=process, url=lines[0].split()[3], lines=lines)
    raise AssertionError(f"{process.args} did not start: {lines} {process.communicate()}")


def agl_store(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    agl: Sequence[str] = AGL,
) -> tuple[int, str, str]:
    """Run a command, ``agl store``, to its end; return exit code, standard output and standard error."""
    done = subprocess.run(
        [*agl, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout, done.stderr
