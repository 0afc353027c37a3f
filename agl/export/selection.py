"""Which records are exported: rollouts that match, with their attempts and spans, read page by page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import get_args

from agl.errors import AglError, ConfigError
from agl.store.base import LightningStore
from agl.store.paging import iter_attempts, iter_rollouts, iter_spans
from agl.types import (
    AttemptQuery,
    Mode,
    RecordedRollout,
    Rollout,
    RolloutQuery,
    RolloutStatus,
    Span,
    SpanQuery,
)

PAGE = 200
"""Records of a list that are in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote.

    Args:
        path: the file or folder.
        counts: how many of what are in it.
        left_out: how many are not, by cause.
        notes: what else a person should know.
    """

    path: Path
    counts: dict[str, int]
    left_out: Counter[str] = field(default_factory=Counter[str])
    notes: tuple[str, ...] = ()


OnRollout = Callable[[int], None]
"""Hears how many rollouts have been read."""


def unheard(_done: int) -> None:
    """Hear nothing."""


@dataclass(frozen=True, kw_only=True)
class RolloutFilter:
    """Which rollouts are exported, oldest first.

    Args:
        run_id: of this run only.
        status: with this status, or one of these.
        mode: train, val or test.
        min_reward: with at least this reward; those without one are left out then.
        limit: the first so many of those.
    """

    run_id: str | None = None
    status: RolloutStatus | tuple[RolloutStatus, ...] | None = None
    mode: Mode | None = None
    min_reward: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.status == ():
            raise ConfigError("status=[] leaves nothing: name one, or null for all")
        named = (self.status,) if isinstance(self.status, str) else self.status or ()
        refuse_unknown("status", named, get_args(RolloutStatus))
        refuse_unknown("mode", [self.mode] if self.mode else [], get_args(Mode))
        if self.min_reward is not None and not math.isfinite(self.min_reward):
            raise ConfigError(f"min_reward={self.min_reward} must be a number, or null for all")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit={self.limit} must be at least 1, or null for all")

    async def rollouts(self, store: LightningStore) -> AsyncIterator[Rollout]:
        """Yield the rollouts, page by page."""
        status = (self.status,) if isinstance(self.status, str) else self.status
        query = RolloutQuery(run_id=self.run_id, status=status, mode=self.mode, limit=PAGE)
        found = 0
        async for rollout in iter_rollouts(store, query):
            if self.min_reward is not None and (rollout.reward is None or rollout.reward < self.min_reward):
                continue
            yield rollout
            found += 1
            if found == self.limit:
                return

    def words(self) -> str:
        """Return what was asked for, as the settings that say so."""
        names = [one.name for one in fields(RolloutFilter)]
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return " ".join(f"{name}={value}" for name, value in given.items())

    def nothing_found(self, store: LightningStore) -> AglError:
        """Return the error that says that no rollout matches."""
        asked = self.words()
        which = f"no rollout with {asked}" if asked else "no rollout"
        return AglError(f"nothing to export: {store.location} has {which}; see agl ls rollouts")


def refuse_unknown(setting: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Check that what is given is among what is known.

    Raises:
        ConfigError: it is not.
    """
    for one in given:
        if one not in known:
            raise ConfigError(f"{setting}={one} must be one of {', '.join(known)}")


async def with_attempts(store: LightningStore, rollout: Rollout) -> RecordedRollout:
    """Return the rollout with its attempts."""
    attempts = ()
    if rollout.num_attempts:
        query = AttemptQuery(rollout_id=rollout.rollout_id, limit=PAGE)
        attempts = tuple([attempt async for attempt in iter_attempts(store, query)])
    return RecordedRollout.trusted({**rollout.__dict__, "attempts": attempts})


async def spans_of(store: LightningStore, rollout_id: str) -> AsyncIterator[Span]:
    """Yield all spans of a rollout, of all its attempts."""
    async for span in iter_spans(store, SpanQuery(rollout_id=rollout_id, limit=PAGE)):
        yield span
