"""Real ``agl proxy`` processes, and a scripted upstream, on ports that the system chooses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from store_processes import StoreProcess, agl_store, served

AGL = (sys.executable, "-m", "agl", "proxy")
LAST_LINE = "  agents "
UPSTREAM = Path(__file__).with_name("scripted_upstream.py")


served_proxy = partial(served, agl=AGL, last_line=LAST_LINE)
"""Serves a proxy until the block ends."""
agl_proxy = partial(agl_store, agl=AGL)
"""Runs ``agl proxy`` to its end; returns exit code, standard output and standard error."""


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
