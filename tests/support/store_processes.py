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
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Generator[StoreProcess]:
    """Serve a store until the block ends; the process is killed if it still runs then."""
    command = [*AGL, *arguments] if "--port" in arguments else [*AGL, "--port", "0", *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            yield _started(process)
        finally:
            process.kill()


def _started(process: subprocess.Popen[str]) -> StoreProcess:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(LAST_LINE):
            return StoreProcess(process=process, url=lines[0].split()[3], lines=lines)
    raise AssertionError(f"agl store did not start: {lines} {process.communicate()}")


def agl_store(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, timeout: float = 60.0
) -> tuple[int, str, str]:
    """Run ``agl store`` to its end; return exit code, standard output and standard error."""
    done = subprocess.run(
        [*AGL, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout, done.stderr
