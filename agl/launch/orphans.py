"""Signs of life of a run, and what its runners did after the last one.

Runners on other machines outlive a killed algorithm. Its proxy is gone with it, so what their agents do then fails, or
ends with a reward that no model had a part in; a resumed run must not take that for results.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from agl.errors import StoreError
from agl.evaluation.rollouts import ABANDONED, ASKED, set_aside
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import MetricQuery, Rollout, RolloutQuery

log = logging.getLogger(__name__)

SIGN = "run/alive"
"""Metric whose time, of the store's clock, is the last moment at which the run's process is known to have lived."""
SIGN_SECONDS = 5.0
_ENDED = ("succeeded", "failed", "cancelled")


@asynccontextmanager
async def signs_of_life(
    store: LightningStore,
    run_id: str,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[None]:
    """Tell the store every ``SIGN_SECONDS`` that the run lives, until the block ends."""

    async def tell_for_ever() -> None:
        while True:
            try:
                await store.add_metrics(run_id, 0, {SIGN: 1.0})
            except StoreError as error:
                log.warning("a sign of life of the run %s did not reach the store: %s", run_id, error)
            await sleep(SIGN_SECONDS)

    telling = asyncio.create_task(tell_for_ever(), name="agl-run-alive")
    try:
        yield
    finally:
        telling.cancel()


async def set_aside_orphans(store: LightningStore, run_id: str) -> int:
    """Let the resumed run do again what has ended after the last sign of life; return how many rollouts that are."""
    signs = (await store.query_metrics(MetricQuery(run_id=run_id, names=(SIGN,)))).items
    if not signs:
        return 0
    last = signs[-1].time
    orphans: list[Rollout] = []
    query = RolloutQuery(run_id=run_id, status=_ENDED, sort_by="finished_at", order="desc", limit=200)
    async for rollout in iter_rollouts(store, query):
        if rollout.finished_at is None or rollout.finished_at <= last:
            break
        if ABANDONED not in rollout.metadata and ASKED not in rollout.metadata:
            orphans.append(rollout)
    await set_aside(store, orphans)
    return len(orphans)
