"""Run rollouts through the store and wait for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agl.store.base import LightningStore
from agl.store.paging import iter_spans
from agl.types import Rollout, RolloutRequest, Span, SpanQuery

PROGRESS_SECONDS = 1.0
"""How often a wait tells how far it is; the wait itself is woken by the store."""
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


async def run_rollouts(
    store: LightningStore,
    requests: Sequence[RolloutRequest],
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Rollout]:
    """Enqueue, wait until every rollout is terminal, and return them in the order of the requests.

    Requests carry their rollout ids, so that a resumed run gets back what is already done and runs only the rest. A
    rollout left over from before that waits for resources of an ended process is pointed to the resources asked for
    now.
    """
    rollouts = await store.enqueue_many_rollouts(requests)
    for rollout, request in zip(rollouts, requests, strict=True):
        if rollout.status in ("pending", "requeuing") and rollout.resources_id != request.resources_id:
            await store.update_rollout(rollout.rollout_id, resources_id=request.resources_id)
    finished = {rollout.rollout_id: rollout for rollout in rollouts if rollout.status in TERMINAL}
    ids = [rollout.rollout_id for rollout in rollouts]
    while waiting := [rollout_id for rollout_id in ids if rollout_id not in finished]:
        on_progress(len(finished), len(ids))
        done = await store.wait_for_rollouts(waiting, timeout_seconds=PROGRESS_SECONDS)
        finished |= {rollout.rollout_id: rollout for rollout in done}
    on_progress(len(ids), len(ids))
    return [finished[rollout_id] for rollout_id in ids]


async def spans_of_rollout(store: LightningStore, rollout_id: str) -> list[Span]:
    """Return all spans of the rollout's newest attempt."""
    query = SpanQuery(rollout_id=rollout_id, attempt_id="latest")
    return [span async for span in iter_spans(store, query)]
