"""Run rollouts through the store and wait for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

from agl.errors import ConflictError
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts, iter_spans
from agl.types import Json, Rollout, RolloutQuery, RolloutRequest, Span, SpanQuery

PROGRESS_SECONDS = 1.0
"""How often a wait tells how far it is; the wait itself is woken by the store."""
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
ABANDONED = "abandoned"
"""In the metadata of a rollout that is to be run again: an ended process left it open, or it was set aside."""


async def run_rollouts(
    store: LightningStore,
    requests: Sequence[RolloutRequest],
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Rollout]:
    """Enqueue, wait until every rollout is terminal, and return them in the order of the requests.

    Requests carry their rollout ids, so that a resumed run gets back what is already done and runs only the rest. What
    was abandoned, or asked for with another task or other metadata (settings may change on resume), is run again under
    the id with ``-again`` behind it.
    """
    rollouts = await _enqueue(store, requests)
    finished = {rollout.rollout_id: rollout for rollout in rollouts if rollout.status in TERMINAL}
    ids = [rollout.rollout_id for rollout in rollouts]
    while waiting := [rollout_id for rollout_id in ids if rollout_id not in finished]:
        on_progress(len(finished), len(ids))
        done = await store.wait_for_rollouts(waiting, timeout_seconds=PROGRESS_SECONDS)
        finished |= {rollout.rollout_id: rollout for rollout in done}
    on_progress(len(ids), len(ids))
    return [finished[rollout_id] for rollout_id in ids]


async def _enqueue(store: LightningStore, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    rollouts = await store.enqueue_many_rollouts(requests)
    unanswered = [index for index, rollout in enumerate(rollouts) if not answers(rollout, requests[index])]
    if unanswered:
        again = [
            requests[index].model_copy(update={"rollout_id": f"{requests[index].rollout_id}-again"})
            for index in unanswered
        ]
        for index, rollout in zip(unanswered, await _enqueue(store, again), strict=True):
            rollouts[index] = rollout
    return rollouts


def answers(rollout: Rollout, request: RolloutRequest) -> bool:
    """Whether the rollout that the store has under the request's id is what is asked for."""
    if ABANDONED in rollout.metadata and rollout.status in TERMINAL:
        return False
    asked = {name: rollout.metadata.get(name) for name in request.metadata}
    return _same_json(asked, request.metadata) and _same_json(rollout.task, request.task)


def _same_json(stored: Json, given: Json) -> bool:
    """Whether a value read from the store is the one that was given to it: there tuples are lists, and keys text."""
    return stored == given or stored == json.loads(json.dumps(given))


async def abandon_rollouts(store: LightningStore, *, run_id: str) -> int:
    """Cancel the run's open rollouts and mark them as abandoned; return how many there were.

    For a resumed run, before its runner starts: what the ended process left in the queue points to a proxy that is
    gone, and belongs to weights that are not served yet. ``run_rollouts`` asks for it again when its turn comes.
    """
    query = RolloutQuery(run_id=run_id, status=("pending", "requeuing", "preparing", "running"))
    left = [rollout async for rollout in iter_rollouts(store, query)]
    for rollout in left:
        await set_aside(store, [rollout])
        with suppress(ConflictError):  # a time limit was faster
            await store.cancel_rollout(rollout.rollout_id)
    return len(left)


async def set_aside(store: LightningStore, rollouts: Sequence[Rollout]) -> None:
    """Let ``run_rollouts`` run these again when they are asked for the next time."""
    for rollout in rollouts:
        await store.update_rollout(rollout.rollout_id, metadata={**rollout.metadata, ABANDONED: True})


async def spans_of_rollout(store: LightningStore, rollout_id: str) -> list[Span]:
    """Return all spans of the rollout's newest attempt."""
    query = SpanQuery(rollout_id=rollout_id, attempt_id="latest")
    return [span async for span in iter_spans(store, query)]
