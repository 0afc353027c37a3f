"""Scorer: candidates on tasks, side by side, each pair of candidate and task paid for once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from agl.algorithms.base import RunContext
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.spending import Spent, spent_in_rollout
from agl.algorithms.sampling import READ_AT_ONCE, rollout_seed
from agl.evaluation.counts import RolloutCounts, cause_of, count_rollouts
from agl.evaluation.rollouts import TERMINAL, answers, run_rollouts
from agl.metrics.base import Progress
from agl.store.paging import iter_rollouts
from agl.types import Rollout, RolloutConfig, RolloutQuery, RolloutRequest

NO_REWARD = "no reward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One candidate on some tasks.

    A rollout that failed, or gave no reward, has no number: it is neither a 0 nor left unsaid.

    Args:
        rewards: by the task's number; None where there is none.
        failed: by cause; ``no reward`` among them.
    """

    rewards: Mapping[int, float | None]
    failed: Counter[str]

    @property
    def mean(self) -> float | None:
        """Of the rewards there are."""
        given = [reward for reward in self.rewards.values() if reward is not None]
        return fmean(given) if given else None

    @property
    def bad_fraction(self) -> float:
        """The part of the tasks without a reward."""
        return self.failed.total() / len(self.rewards) if self.rewards else 0.0

    def __str__(self) -> str:
        shown = "no reward" if self.mean is None else f"{self.mean:.3f}"
        failed = f", {self.failed.total()} failed" if self.failed else ""
        return f"{shown} on {len(self.rewards)} tasks{failed}"


class Scorer:
    """Runs training tasks under candidates' prompts.

    Args:
        context: the run's parts.
        sampling: request parameters of the agent's calls.
        config: limits of each rollout.
    """

    def __init__(self, context: RunContext, *, sampling: Mapping[str, Any], config: RolloutConfig) -> None:
        self.spent = Spent()
        self.counts = RolloutCounts()
        self._context, self._sampling, self._config = context, dict(sampling), config
        self._known: dict[tuple[str, int], Rollout] = {}

    @property
    def worst_reward(self) -> float:
        """The lowest reward seen so far; 0 before the first."""
        return min((r.reward for r in self._known.values() if r.reward is not None), default=0.0)

    def num_new(self, candidates: Sequence[Candidate], tasks: Sequence[int]) -> int:
        """Return how many rollouts ``score`` would have to ask for."""
        return len(self._new(candidates, tasks))

    async def num_unpaid(self, candidates: Sequence[Candidate], tasks: Sequence[int]) -> int:
        """Return how many of these rollouts are still to be run: a resumed run finds the others in the store."""
        new = self._new(candidates, tasks)
        if not self._context.resume:
            return len(new)
        requests = [self._request(one, task, resources_id=None) for one, task in new]
        wanted = {str(request.rollout_id): request for request in requests}
        unpaid = 0
        while wanted:
            query = RolloutQuery(rollout_ids=tuple(wanted))
            found = {one.rollout_id: one async for one in iter_rollouts(self._context.store, query)}
            others: dict[str, RolloutRequest] = {}
            for name, request in wanted.items():
                if name not in found:
                    unpaid += 1
                elif not answers(found[name], request):
                    others[f"{name}-again"] = request
                else:
                    unpaid += found[name].status not in TERMINAL
            wanted = others
        return unpaid

    async def score(
        self, candidates: Sequence[Candidate], tasks: Sequence[int], *, phase: str = "scoring"
    ) -> list[Scores]:
        """Run every candidate on every task, all at once, and return each candidate's scores.

        The seed of a task's sampling is the same for all candidates, so their rewards are pairs.

        Args:
            candidates: in the order of the result.
            tasks: numbers of training tasks.
            phase: for the progress line.
        """
        new = self._new(candidates, tasks)
        rollouts = await self._run(new, phase=phase)
        self._known |= {
            (one.candidate_id, task): rollout for (one, task), rollout in zip(new, rollouts, strict=True)
        }
        return [self.scores_of(one, tasks) for one in candidates]

    async def run_again(self, candidate: Candidate, tasks: Sequence[int], label: str) -> list[Rollout]:
        """Run a candidate on tasks that it may have been run on, beside its scores; a label answers once."""
        return await self._run([(candidate, task) for task in tasks], phase=label, label=label)

    def scores_of(self, candidate: Candidate, tasks: Sequence[int]) -> Scores:
        """Return what is known of a candidate on these tasks; tasks it was not run on are left out."""
        rollouts = {
            task: rollout
            for task in tasks
            if (rollout := self._known.get((candidate.candidate_id, task))) is not None
        }
        bad = [
            NO_REWARD if rollout.status == "succeeded" else cause_of(rollout)
            for rollout in rollouts.values()
            if is_bad(rollout)
        ]
        rewards = {task: None if is_bad(rollout) else rollout.reward for task, rollout in rollouts.items()}
        return Scores(rewards=rewards, failed=Counter(bad))

    def rollout_of(self, candidate: Candidate, task: int) -> Rollout:
        """Return the rollout of a candidate on a task that was scored."""
        return self._known[candidate.candidate_id, task]

    def _new(self, candidates: Sequence[Candidate], tasks: Sequence[int]) -> list[tuple[Candidate, int]]:
        pairs = {(one.candidate_id, task): one for one in candidates for task in tasks}
        return [(one, task) for (key, task), one in pairs.items() if (key, task) not in self._known]

    async def _run(
        self, pairs: Sequence[tuple[Candidate, int]], *, phase: str, label: str = ""
    ) -> list[Rollout]:
        resources = {one.candidate_id: await self._resources_id(one) for one, _ in pairs}
        requests = [self._request(one, task, resources[one.candidate_id], label) for one, task in pairs]
        rollouts = await run_rollouts(
            self._context.store,
            requests,
            on_wait=lambda waited: self._context.metrics.progress(
                Progress(phase=phase, done=waited.done, total=waited.total, waiting_for=waited.words)
            ),
        )
        self.counts += count_rollouts(rollouts)
        await self._account(rollouts)
        return rollouts

    async def _resources_id(self, candidate: Candidate) -> str:
        return await self._context.policy.resources_id(
            f"prompts-{candidate.candidate_id}", self._sampling, resources=candidate.prompts
        )

    def _request(
        self, candidate: Candidate, task: int, resources_id: str | None, label: str = ""
    ) -> RolloutRequest:
        context = self._context
        place = f"{candidate.candidate_id}-{task}"
        return RolloutRequest(
            task=context.train_tasks[task],
            rollout_id=f"{context.prefix}-{label}-{place}" if label else f"{context.prefix}-{place}",
            run_id=context.run_id,
            mode="train",
            group_id=f"{context.prefix}-task-{task}",
            resources_id=resources_id,
            config=self._config,
            metadata={
                "seed": rollout_seed(context.seed, f"search-{task}"),
                "sampling": self._sampling,
                "candidate": candidate.candidate_id,
            },
        )

    async def _account(self, rollouts: Sequence[Rollout]) -> None:
        reading = asyncio.Semaphore(READ_AT_ONCE)

        async def spent_by(rollout: Rollout) -> Spent:
            async with reading:
                return await spent_in_rollout(self._context.store, rollout)

        self.spent = sum(await asyncio.gather(*map(spent_by, rollouts)), self.spent)


def is_bad(rollout: Rollout) -> bool:
    """Whether a finished rollout gave no reward, whatever the reason."""
    return rollout.status != "succeeded" or rollout.reward is None
