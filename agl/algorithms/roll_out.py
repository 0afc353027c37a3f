"""RollOut: how an algorithm of a user's own runs the agent: tasks under resources, paid for once, failures counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agl.algorithms.base import RunContext
from agl.algorithms.sampling import rollout_seed
from agl.errors import RunStoppedError
from agl.evaluation.counts import RolloutCounts, count_rollouts, first_cause
from agl.evaluation.rollouts import run_rollouts, set_aside
from agl.evaluation.waiting import WaitedFor
from agl.metrics.base import Progress
from agl.types import Json, ProxyLLM, Resource, Rollout, RolloutConfig, RolloutRequest
from agl.types.record import Record

MIN_JUDGED = 8
"""Rollouts before their failures can stop a run: of fewer, each weighs too much."""


class RollOut:
    """Runs the agent on tasks. Called as a function.

    Args:
        context: the run's parts.
        resources: what agents get where a call says nothing else.
        config: limits of each rollout.
        max_bad_fraction: the run stops when more of all rollouts gave no reward.
    """

    def __init__(
        self,
        context: RunContext,
        resources: Mapping[str, Resource],
        *,
        config: RolloutConfig,
        max_bad_fraction: float,
    ) -> None:
        self.counts = RolloutCounts()
        self._context, self._resources, self._config = context, dict(resources), config
        self._max_bad_fraction = max_bad_fraction
        self._num_calls = 0

    async def __call__(
        self, tasks: Sequence[Json], resources: Mapping[str, Resource] | None = None, *, label: str = ""
    ) -> list[Rollout]:
        """Run every task once, all at once, and return the rollouts as they ended, in the order of the tasks.

        A resumed run gets from the store what an earlier process was answered under the same label.

        Args:
            tasks: inputs of the agent.
            resources: stand in for those of the same name that the run began with.
            label: names these rollouts within the run; empty: they are numbered in the order of the calls.

        Raises:
            RunStoppedError: too many of all rollouts gave no reward; the message names the first cause.
        """
        self._num_calls += 1
        label = label or f"call-{self._num_calls}"
        context, given = self._context, {**self._resources, **(resources or {})}
        version = context.policy.policy_version
        digest = digest_of(given, policy_version=version)
        resources_id = await context.policy.publish(f"{label}-{digest}", given)
        requests = [
            RolloutRequest(
                task=task,
                rollout_id=f"{context.prefix}-{label}-{index}",
                run_id=context.run_id,
                mode="train",
                resources_id=resources_id,
                config=self._config,
                metadata={"seed": rollout_seed(context.seed, f"{label}-{index}"), "resources": digest},
            )
            for index, task in enumerate(tasks)
        ]
        rollouts = await run_rollouts(
            context.store, requests, on_wait=lambda waited: self._progress(label, waited)
        )
        self.counts += count_rollouts(rollouts)
        await self._check(rollouts)
        return rollouts

    def _progress(self, label: str, waited: WaitedFor) -> None:
        self._context.metrics.progress(
            Progress(phase=label, done=waited.done, total=waited.total, waiting_for=waited.words)
        )

    async def _check(self, rollouts: Sequence[Rollout]) -> None:
        counts = self.counts
        if counts.enqueued < MIN_JUDGED or counts.bad <= self._max_bad_fraction * counts.enqueued:
            return
        bad = [one for one in rollouts if one.status != "succeeded" or one.reward is None]
        await set_aside(self._context.store, bad)  # a resumed run tries them again
        raise RunStoppedError(
            f"{counts.bad} of {counts.enqueued} rollouts gave no reward, more than"
            f" algorithm.max_bad_fraction={self._max_bad_fraction}; the first: {first_cause(bad)}"
        )


def digest_of(resources: Mapping[str, Resource], *, policy_version: int) -> str:
    """Return twelve hex digits of what agents are given: the same in each process of a run, wherever its proxy is."""
    shown = {name: _plain(value) for name, value in resources.items()}
    text = json.dumps([shown, policy_version], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(resource: Resource) -> Any:
    if isinstance(resource, ProxyLLM):
        return {"model": resource.model, "sampling": resource.sampling}
    return resource.model_dump() if isinstance(resource, Record) else resource
