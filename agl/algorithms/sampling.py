"""Sample groups of rollouts and read from their spans what can be learned from."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from agl.adapters.trace import AdaptedAttempt, TracerTraceToTriplet
from agl.algorithms.groups import GroupCounts, GroupRules, chosen_groups
from agl.errors import RunStoppedError
from agl.evaluation.counts import RolloutCounts, count_rollouts, first_cause
from agl.evaluation.rollouts import is_straggler, run_rollouts, set_aside, spans_of_rollout
from agl.evaluation.waiting import OnWait, no_words
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
        groups: usable rollouts by group, in the order of the tasks; empty and dropped groups are left out.
        group_counts: what became of all groups.
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
    group_counts: GroupCounts = field(default_factory=GroupCounts)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampler:
    """Runs members of groups and reads their spans.

    Args:
        sampling: the request parameters in the resources.
    """

    store: LightningStore
    adapter: TracerTraceToTriplet
    run_id: str
    resources_id: str
    seed: int
    sampling: Mapping[str, Any]
    config: RolloutConfig
    wait_fraction: float
    on_wait: OnWait

    async def sampled(self, members: Sequence[tuple[GroupRequest, str]]) -> list[_Member]:
        """Run one rollout for each group and member name, and adapt the spans of those that have a reward."""
        requests = [self._request(group, member) for group, member in members]
        rollouts = await run_rollouts(
            self.store, requests, on_wait=self.on_wait, wait_fraction=self.wait_fraction
        )
        reading = asyncio.Semaphore(READ_AT_ONCE)

        async def adapted(rollout: Rollout) -> AdaptedAttempt | None:
            if rollout.status != "succeeded" or rollout.reward is None:
                return None
            async with reading:
                return self.adapter.adapt(await spans_of_rollout(self.store, rollout.rollout_id))

        attempts = await asyncio.gather(*map(adapted, rollouts))
        return [
            _Member(group=group, name=name, rollout=rollout, adapted=attempt)
            for (group, name), rollout, attempt in zip(members, rollouts, attempts, strict=True)
        ]

    def _request(self, group: GroupRequest, member: str) -> RolloutRequest:
        return RolloutRequest(
            task=group.task,
            rollout_id=f"{group.group_id}-{member}",
            run_id=self.run_id,
            mode="train",
            group_id=group.group_id,
            resources_id=self.resources_id,
            config=self.config,
            metadata={
                "seed": rollout_seed(self.seed, f"{group.group_id.removeprefix(self.run_id)}-{member}"),
                "sampling": dict(self.sampling),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A group's rollout as it ended, and what was read from its spans where it has a reward."""

    group: GroupRequest
    name: str
    rollout: Rollout
    adapted: AdaptedAttempt | None

    @property
    def is_usable(self) -> bool:
        return self.adapted is not None and bool(self.adapted.trajectories)


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
    rules: GroupRules | None = None,
    on_wait: OnWait = no_words,
) -> tuple[Batch, list[Rollout]]:
    """Run every group's rollouts and adapt their spans; the second part is every rollout as it ended.

    ``sampling`` are the request parameters in the resources. What the rules cut off, dropped or sampled again follows
    from how the rollouts ended in the store, so a resumed run comes to the same batch.
    """
    rules = rules or GroupRules()
    sampler = _Sampler(
        store=store,
        adapter=adapter,
        run_id=run_id,
        resources_id=resources_id,
        seed=seed,
        sampling=dict(sampling or {}),
        config=config,
        wait_fraction=rules.wait_fraction,
        on_wait=on_wait,
    )
    newest = await sampler.sampled([(group, f"{member}") for group in groups for member in range(group_size)])
    members = list(newest)
    for number in range(1, rules.fill_rounds + 1 if rules.incomplete == "fill" else 1):
        lacking = [one for one in newest if not one.is_usable and not is_straggler(one.rollout)]
        if not lacking:
            break
        newest = await sampler.sampled(
            [(one.group, f"{one.name.partition('-')[0]}-fill{number}") for one in lacking]
        )
        members += newest
    batch = _batch(groups, members, rules, group_size=group_size)
    return batch, [one.rollout for one in members]


def _batch(
    groups: Sequence[GroupRequest], members: Sequence[_Member], rules: GroupRules, *, group_size: int
) -> Batch:
    usable: dict[str, list[SampledRollout]] = {group.group_id: [] for group in groups}
    dropped: Counter[str] = Counter()
    read = [one.adapted for one in members if one.adapted is not None]
    for one in members:
        if one.adapted is None or one.rollout.reward is None:
            continue
        dropped.update(one.adapted.dropped)
        if one.is_usable:
            usable[one.group.group_id].append(
                SampledRollout(
                    rollout_id=one.rollout.rollout_id,
                    group_id=one.group.group_id,
                    reward=one.rollout.reward,
                    trajectories=one.adapted.trajectories,
                )
            )
    filled = len(members) - len(groups) * group_size
    chosen, group_counts = chosen_groups([*usable.values()], rules, group_size=group_size, filled=filled)
    without_calls = sum(attempt.num_calls == 0 for attempt in read)
    untrainable = sum(attempt.num_calls > 0 and not attempt.trajectories for attempt in read)
    counts = count_rollouts([one.rollout for one in members])
    return Batch(
        groups=chosen,
        group_counts=group_counts,
        counts=replace(counts, without_calls=without_calls, untrainable=untrainable),
        dropped=dropped,
        num_calls=sum(attempt.num_calls for attempt in read),
        num_exact=sum(attempt.num_exact for attempt in read),
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
    bad, waited_for = counts.bad - counts.stragglers, counts.enqueued - counts.stragglers
    if waited_for == 0 or bad / waited_for <= max_bad_fraction:
        return
    without = [
        rollout
        for rollout in rollouts
        if (rollout.status != "succeeded" or rollout.reward is None) and not is_straggler(rollout)
    ]
    dropped = f" (dropped: {dict(batch.dropped)})" if batch.dropped else ""
    raise RunStoppedError(
        f"{bad} of {waited_for} rollouts gave nothing to learn from, more than"
        f" algorithm.max_bad_fraction={max_bad_fraction}; the first: {first_cause(without)}{dropped}"
    )
