"""The spans of a request go into the store: in one call where all can be kept, else around those that cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agl.errors import InvalidRequestError, NotFoundError
from agl.store.base import LightningStore
from agl.store.wire import MAX_BATCH
from agl.types import RolloutQuery, Span


async def store_spans(store: LightningStore, spans: Sequence[Span]) -> Counter[str]:
    """Store the spans; return why some were rejected, and how many.

    The store takes a batch whole or not at all. When it refuses one, the spans of unknown rollouts leave it, and the
    rest goes in by halves, so that k refused attempts among n cost about k log n calls.
    """
    rejected = Counter[str]()
    for start in range(0, len(spans), MAX_BATCH):
        batch = spans[start : start + MAX_BATCH]
        try:
            await store.add_many_spans(batch)
        except (NotFoundError, InvalidRequestError):
            known = await _of_known_rollouts(store, batch, rejected)
            await _store_by_halves(store, sorted(known, key=_attempt), rejected)
    return rejected


async def _of_known_rollouts(
    store: LightningStore, spans: Sequence[Span], rejected: Counter[str]
) -> list[Span]:
    named = tuple({span.rollout_id for span in spans if span.rollout_id is not None})
    if not named:
        return list(spans)
    page = await store.query_rollouts(RolloutQuery(rollout_ids=named, limit=len(named)))
    unknown = set(named).difference(rollout.rollout_id for rollout in page.items)
    rejected.update(f"no rollout has the id {s.rollout_id!r}" for s in spans if s.rollout_id in unknown)
    return [span for span in spans if span.rollout_id not in unknown]


async def _store_by_halves(store: LightningStore, spans: Sequence[Span], rejected: Counter[str]) -> None:
    """Store spans that are sorted by attempt; those of one attempt are refused together where it is unknown."""
    open_parts = [spans] if spans else []
    while open_parts:
        part = open_parts.pop()
        try:
            await store.add_many_spans(part)
        except (NotFoundError, InvalidRequestError) as error:
            one_attempt = _attempt(part[0]) == _attempt(part[-1])
            if len(part) == 1 or (one_attempt and isinstance(error, NotFoundError)):
                rejected[str(error)] += len(part)
            else:
                middle = len(part) // 2
                open_parts += [part[middle:], part[:middle]]


def _attempt(span: Span) -> tuple[str, str]:
    return span.rollout_id or "", span.attempt_id or ""
