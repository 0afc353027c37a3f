"""Restores: what a store can that takes in the records of another, as an archive of a run has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agl.types import RecordedRollout, Run, Span


@runtime_checkable
class Restores(Protocol):
    """A store that takes in what another store recorded, as it is there."""

    async def restore(
        self,
        *,
        runs: Sequence[Run] = (),
        rollouts: Sequence[RecordedRollout] = (),
        spans: Sequence[Span] = (),
    ) -> dict[str, int]:
        """Store runs, rollouts with their attempts, and spans, all or none; what is known by its id stays as it is.

        Nothing of it is work to do: a rollout that had not ended is in no queue, its attempts have no time limit, and
        spans are no sign of life.

        Returns:
            How many ``runs``, ``rollouts``, ``attempts`` and ``spans`` are new.

        Raises:
            NotFoundError: a span names a rollout or attempt that neither the store nor this call has.
        """
        ...
