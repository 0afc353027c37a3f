"""Run rollouts through the store and wait for all, or most, of them."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from agl.errors import ConflictError, StoreError
from agl.evaluation.waiting import OnWait, WaitedFor, Watch, no_words, waited_words
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts, iter_spans
from agl.types import Json, Rollout, RolloutQuery, RolloutRequest, Span, SpanQuery

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 1.0
"""How often a wait tells how far it is; the wait itself is woken by the store."""
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
WORDS_SECONDS = 5.0
"""How often a wait looks whom it waits for."""
STRAGGLER = "straggler"
"""In the metadata of a rollout that was still open when enough of those asked for with it had ended."""
ABANDONED = "abandoned"
"""In the metadata of a rollout that is to be run again: an ended process left it open, or it was set aside."""

ASKED = "optimizer"
"""In the metadata of a question that an algorithm asks a model itself: no runner has a part in it."""
REPLAY_OF = "replay_of"
"""In the metadata of a replay: the rollout whose answers it has. They are not to be learned twice."""


async def run_rollouts(
    store: LightningStore,
    requests: Sequence[RolloutRequest],
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    on_wait: OnWait = no_words,
    wait_fraction: float = 1.0,
) -> list[Rollout]:
    """Enqueue, wait until every rollout is terminal, and return them in the order of the requests.

    Requests carry their rollout ids, so that a resumed run gets back what is already done and runs only the rest. What
    was abandoned, or asked for with another task or other metadata (settings may change on resume), is run again under
    the id with ``-again`` behind it.

    With a ``wait_fraction`` below 1 the wait ends when so many are terminal; the others are cancelled and marked as
    stragglers, in the store: asked again, it answers with the same ends. One that ends before its cancel counts as it
    ended.

    ``on_progress`` hears how many are terminal, ``on_wait`` also whom the others keep waiting.
    """
    rollouts = await _enqueue(store, requests)
    finished = {rollout.rollout_id: rollout for rollout in rollouts if rollout.status in TERMINAL}
    ids = [rollout.rollout_id for rollout in rollouts]
    enough = math.ceil(wait_fraction * len(set(ids)) - 1e-9)  # 0.7 of 10 is 7, not 8
    teller = _Teller(store, rollouts, on_progress, on_wait)
    while len(finished) < enough:
        waiting = [rollout_id for rollout_id in ids if rollout_id not in finished]
        await teller.tell(waiting, needed=enough - len(finished))
        done = await store.wait_for_rollouts(
            waiting, timeout_seconds=PROGRESS_SECONDS, at_least=enough - len(finished)
        )
        finished |= {rollout.rollout_id: rollout for rollout in done}
    left = [rollout for rollout in rollouts if rollout.rollout_id not in finished]
    if left:
        finished |= await _cut(store, left)
    await teller.tell([], needed=0)
    return [finished[rollout_id] for rollout_id in ids]


class _Teller:
    """Tells how far a wait is, and every ``WORDS_SECONDS`` whom it waits for."""

    def __init__(
        self,
        store: LightningStore,
        rollouts: Sequence[Rollout],
        on_progress: Callable[[int, int], None],
        on_wait: OnWait,
    ) -> None:
        self._on_progress, self._on_wait, self._total = on_progress, on_wait, len(rollouts)
        self._time = asyncio.get_running_loop().time
        self._watch = None if on_wait is no_words else Watch(store, rollouts, time=self._time)
        self._whom = ""
        self._look_at = self._time() + PROGRESS_SECONDS / 2  # most waits are over by then

    async def tell(self, waiting: Sequence[str], *, needed: int) -> None:
        done = self._total - len(waiting)
        self._on_progress(done, self._total)
        if not waiting:
            self._on_wait(WaitedFor(done=done, total=self._total))
            return
        if self._watch is not None and self._time() >= self._look_at:
            self._look_at = self._time() + WORDS_SECONDS
            try:
                self._whom = await self._watch.whom(waiting)
            except StoreError as error:  # the wait itself finds out whether the store comes back
                log.warning("cannot tell whom the run waits for: %s", error)
        words = waited_words(len(set(waiting)), needed)
        words = f"{words}: {self._whom}" if self._whom else words
        self._on_wait(WaitedFor(done=done, total=self._total, words=words))


async def _cut(store: LightningStore, left: Sequence[Rollout]) -> dict[str, Rollout]:
    """Mark and cancel rollouts that nobody waits for any longer; return how each of them ended."""
    for rollout in left:
        metadata = {**rollout.metadata, STRAGGLER: True}
        await store.update_rollout(rollout.rollout_id, metadata=metadata)
        with suppress(ConflictError):  # it ended at the last moment
            await store.cancel_rollout(rollout.rollout_id)
    ended = await store.wait_for_rollouts([rollout.rollout_id for rollout in left])
    return {rollout.rollout_id: rollout for rollout in ended}


def is_straggler(rollout: Rollout) -> bool:
    """Return whether the rollout was cancelled because enough others had ended."""
    return rollout.status == "cancelled" and STRAGGLER in rollout.metadata


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
