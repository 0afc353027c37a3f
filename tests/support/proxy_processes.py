"""Real ``agl proxy`` processes, and a scripted upstream, on ports that the system chooses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from store_processes import StoreProcess

AGL = (sys.executable, "-m", "agl", "proxy")
LAST_LINE = "  agents "
UPSTREAM = Path(__file__).with_name("scripted_upstream.py")


@contextmanager
def served_proxy(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Generator[StoreProcess]:
    """Serve a proxy until the block ends; the process is killed if it still runs then."""
    command = [*AGL, *([] if "--port" in arguments else ["--port", "0"]), *arguments]
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
    raise AssertionError(f"agl proxy did not start: {lines} {process.communicate()}")


def agl_proxy(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, timeout: float = 60.0
) -> tuple[int, str, str]:
    """Run ``agl proxy`` to its end; return exit code, standard output and standard error."""
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


@contextmanager
def scripted_upstream() -> Generator[StoreProcess]:
    """A server of chat completions; ``url`` is its base URL."""
    with subprocess.Popen([sys.executable, str(UPSTREAM)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            yield StoreProcess(process=process, url=url, lines=[url])
        finally:
            process.kill()
