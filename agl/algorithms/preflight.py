"""Preflight: run a few rollouts first and look at everything that training will need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agl.algorithms.base import RunContext
from agl.algorithms.sampling import Batch, GroupRequest, bad_ones_run_again, sample_groups
from agl.errors import RunStoppedError
from agl.evaluation.counts import first_cause
from agl.evaluation.waiting import OnWait, no_words
from agl.types import Rollout, RolloutConfig

NUM_TASKS = 4
"""An agent may fail on some tasks; it should not on the first four."""


async def preflight(
    context: RunContext,
    *,
    sampling: Mapping[str, Any],
    config: RolloutConfig,
    on_wait: OnWait = no_words,
) -> None:
    """Run the first tasks once and report calls, exact ids, reward and sequences of one that succeeded.

    Raises:
        RunStoppedError: no calls, no exact ids, no reward, or every rollout failed; the message says which.
    """
    groups = [
        GroupRequest(group_id=f"{context.prefix}-preflight-{index}", task=task)
        for index, task in enumerate(context.train_tasks[:NUM_TASKS])
    ]
    batch, rollouts = await sample_groups(
        context.store,
        context.adapter,
        groups,
        group_size=1,
        run_id=context.run_id,
        resources_id=await context.policy.resources_id("preflight", sampling),
        seed=context.seed,
        sampling=sampling,
        config=config,
        on_wait=on_wait,
    )
    async with bad_ones_run_again(context.store, batch, rollouts):
        _check(batch, rollouts)
    num_good = sum(rollout.status == "succeeded" for rollout in rollouts)
    first = batch.rollouts[0]
    failed = f", {batch.counts.failed.total()} of {len(rollouts)} failed" if batch.counts.failed else ""
    context.metrics.note(
        f"preflight: {batch.num_calls} calls in {num_good} rollouts, {batch.num_exact} with exact ids,"
        f" first reward {first.reward:g},"
        f" {sum(len(r.trajectories) for r in batch.rollouts)} sequences after merging{failed}"
    )


def _check(batch: Batch, rollouts: Sequence[Rollout]) -> None:
    succeeded = [rollout for rollout in rollouts if rollout.status == "succeeded"]
    if not succeeded:
        raise RunStoppedError(
            f"preflight: none of {len(rollouts)} rollouts succeeded; the first: {first_cause(rollouts)}"
        )
    if all(rollout.reward is None for rollout in succeeded):
        raise RunStoppedError(f"preflight: {first_cause(succeeded)}")
    if batch.num_calls == 0:
        raise RunStoppedError(
            "preflight: the agent made no model call through the proxy; it must use the base URL of the llm it is given"
            " (and adapter.agents, if set, must match its name)"
        )
    if not batch.rollouts:
        causes = ", ".join(f"{cause} ({count})" for cause, count in batch.dropped.items())
        raise RunStoppedError(
            f"preflight: no call has exact token ids to learn from: {causes or 'nothing recorded'}"
        )
