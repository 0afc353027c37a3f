"""A run's entry in the store: where its code was, and how it ended."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from agl.errors import StoreError
from agl.store.address import last_seconds
from agl.store.base import LightningStore
from agl.types import RunStatus

log = logging.getLogger(__name__)

LAST_WORD_SECONDS = 1.0
"""How long a run that failed or was stopped tries to tell the store so."""


@asynccontextmanager
async def recorded_status(store: LightningStore, run_id: str) -> AsyncGenerator[None]:
    """Keep the run's status in the store: running, then how the block ended."""
    await store.update_run(run_id, status="running")
    status: RunStatus = "failed"
    try:
        yield
    except asyncio.CancelledError:
        status = "interrupted"
        raise
    else:
        status = "succeeded"
    finally:
        if status == "succeeded":
            await store.update_run(run_id, status=status)
        else:
            await _last_word(store, run_id, status)


async def _last_word(store: LightningStore, run_id: str, status: RunStatus) -> None:
    """Tell the store how the run ended, if it can be reached soon."""
    try:
        async with asyncio.timeout(last_seconds(store, LAST_WORD_SECONDS)):
            await store.update_run(run_id, status=status)
    except (TimeoutError, StoreError) as error:
        reason = str(error) or "no answer in time"
        log.warning("the store does not hear that the run %s is %s: %s", run_id, status, reason)


def git_commit() -> str | None:
    """The commit of the folder the command was started in, None outside a repository."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return None
