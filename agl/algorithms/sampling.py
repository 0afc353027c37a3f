"""Sample groups of rollouts and read from their spans what can be learned from."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from agl.adapters.trace import AdaptedAttempt, TracerTraceToTriplet
from agl.errors import RunStoppedError
from agl.evaluation.counts import RolloutCounts, count_rollouts, first_cause
from agl.evaluation.rollouts import run_rollouts, set_aside, spans_of_rollout
from agl.store.base import LightningStore
from agl.types import Json, Rollout, RolloutConfig, RolloutRequest, Trajectory

READ_AT_ONCE = 8
"""Rollouts whose spans are in memory together: they hold every prompt as text and ids, megabytes in long ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRollout:
    """A rollout with a reward and at least one sequence to learn from."""

    rollout_id: str
    group_id: str
    reward: float
    trajectories: list[Trajectory]

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens that the policy sampled in it."""
        return sum(sum(trajectory.loss_mask) for trajectory in self.trajectories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rollouts of one iteration.

    Args:
        groups: usable rollouts by group, in the order of the tasks; empty groups are left out.
        counts: what became of all rollouts, the unusable ones included.
        dropped: choices and sequences left out, by cause.
        num_calls: recorded calls.
        num_exact: choices with exact ids.
    """

    groups: list[list[SampledRollout]]
    counts: RolloutCounts
    dropped: Counter[str]
    num_calls: int
    num_exact: int

    @property
    def rollouts(self) -> list[SampledRollout]:
        """All usable rollouts, group after group."""
        return [rollout for group in self.groups for rollout in group]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A task to sample ``group_size`` times; ``group_id`` also makes the rollout ids."""

    group_id: str
    task: Json


def rollout_seed(seed: int, place: str) -> int:
    """Return the seed of everything that is sampled in one rollout: the same at this place of every run with that
    seed.
    """
    return Random(f"{seed}/{place}").getrandbits(31)


async def sample_groups(
    store: LightningStore,
    adapter: TracerTraceToTriplet,
    groups: Sequence[GroupRequest],
    *,
    group_size: int,
    run_id: str,
    resources_id: str,
    seed: int,
    sampling: Mapping[str, Any] | None = None,
    config: RolloutConfig,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Batch, list[Rollout]]:
    """Run every group's rollouts and adapt their spans; the second part is every rollout as it ended.

    ``sampling`` are the request parameters in the resources.
    """
    requests = [
        RolloutRequest(
            task=group.task,
            rollout_id=f"{group.group_id}-{member}",
            run_id=run_id,
            mode="train",
            group_id=group.group_id,
            resources_id=resources_id,
            config=config,
            metadata={
                "seed": rollout_seed(seed, f"{group.group_id.removeprefix(run_id)}-{member}"),
                "sampling": dict(sampling or {}),
            },
        )
        for group in groups
        for member in range(group_size)
    ]
    rollouts = await run_rollouts(store, requests, on_progress=on_progress)
    good = [rollout for rollout in rollouts if rollout.status == "succeeded" and rollout.reward is not None]
    reading = asyncio.Semaphore(READ_AT_ONCE)

    async def adapted_attempt(rollout: Rollout) -> AdaptedAttempt:
        async with reading:
            return adapter.adapt(await spans_of_rollout(store, rollout.rollout_id))

    adapted = await asyncio.gather(*(adapted_attempt(rollout) for rollout in good))
    return _batch(groups, rollouts, dict(zip((r.rollout_id for r in good), adapted, strict=True))), rollouts


def _batch(
    groups: Sequence[GroupRequest], rollouts: Sequence[Rollout], adapted: dict[str, AdaptedAttempt]
) -> Batch:
    usable: dict[str, list[SampledRollout]] = {group.group_id: [] for group in groups}
    dropped: Counter[str] = Counter()
    for rollout in rollouts:
        attempt = adapted.get(rollout.rollout_id)
        if attempt is None or rollout.reward is None or rollout.group_id is None:
            continue
        dropped.update(attempt.dropped)
        if attempt.trajectories:
            usable[rollout.group_id].append(
                SampledRollout(
                    rollout_id=rollout.rollout_id,
                    group_id=rollout.group_id,
                    reward=rollout.reward,
                    trajectories=attempt.trajectories,
                )
            )
    without_calls = sum(attempt.num_calls == 0 for attempt in adapted.values())
    untrainable = sum(attempt.num_calls > 0 and not attempt.trajectories for attempt in adapted.values())
    return Batch(
        groups=[group for group in usable.values() if group],
        counts=replace(count_rollouts(rollouts), without_calls=without_calls, untrainable=untrainable),
        dropped=dropped,
        num_calls=sum(attempt.num_calls for attempt in adapted.values()),
        num_exact=sum(attempt.num_exact for attempt in adapted.values()),
    )


@asynccontextmanager
async def bad_ones_run_again(
    store: LightningStore, batch: Batch, rollouts: Sequence[Rollout]
) -> AsyncGenerator[None]:
    """When the block stops the run, let the resumed run try again what gave nothing to learn from.

    Else a run that a broken service or agent stopped would find the same failures in the store for ever.
    """
    try:
        yield
    except RunStoppedError:
        usable = {rollout.rollout_id for rollout in batch.rollouts}
        await set_aside(store, [rollout for rollout in rollouts if rollout.rollout_id not in usable])
        raise


def check_bad_fraction(batch: Batch, rollouts: Sequence[Rollout], *, max_bad_fraction: float) -> None:
    """Stop the run when too many rollouts gave nothing to learn from.

    Raises:
        RunStoppedError: with the counts and the first cause.
    """
    counts = batch.counts
    if counts.enqueued == 0 or counts.bad / counts.enqueued <= max_bad_fraction:
        return
    bad = [rollout for rollout in rollouts if rollout.status != "succeeded" or rollout.reward is None]
    dropped = f" (dropped: {dict(batch.dropped)})" if batch.dropped else ""
    raise RunStoppedError(
        f"{counts.bad} of {counts.enqueued} rollouts gave nothing to learn from, more than"
        f" algorithm.max_bad_fraction={max_bad_fraction}; the first: {first_cause(bad)}{dropped}"
    )
