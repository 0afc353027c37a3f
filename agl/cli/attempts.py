"""The attempts of a rollout, as commands about one rollout read them."""

from __future__ import annotations

from collections.abc import Sequence

from agl.cli.text import shortened
from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.store.paging import iter_attempts, iter_spans
from agl.types import Attempt, AttemptQuery, Span, SpanQuery


async def attempts_of(store: LightningStore, rollout_id: str) -> list[Attempt]:
    """Return the attempts of the rollout, the first one first."""
    attempts = [attempt async for attempt in iter_attempts(store, AttemptQuery(rollout_id=rollout_id))]
    return sorted(attempts, key=lambda attempt: attempt.sequence_id)


async def spans_of_attempt(store: LightningStore, attempt: Attempt) -> list[Span]:
    """Return all spans of the attempt, in the order in which they came."""
    query = SpanQuery(rollout_id=attempt.rollout_id, attempt_id=attempt.attempt_id)
    return [span async for span in iter_spans(store, query)]


def chosen_attempt(rollout_id: str, attempts: Sequence[Attempt], wanted: str | None) -> Attempt | None:
    """Return the attempt of that id or number, the newest where None is wanted, None where there are no attempts.

    Raises:
        ConfigError: the rollout has no such attempt.
    """
    if wanted is None:
        return attempts[-1] if attempts else None
    for attempt in attempts:
        if wanted in (attempt.attempt_id, str(attempt.sequence_id)):
            return attempt
    known = ", ".join(f"{attempt.sequence_id} ({attempt.attempt_id})" for attempt in attempts) or "none yet"
    raise ConfigError(
        f"--attempt {shortened(wanted, 40)}: rollout {rollout_id} has no such attempt; it has {known}"
    )
