"""Search: one search under way: scores within the budget, chooses, asks the optimizer model, and knows the best."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agl.algorithms.base import RunContext
from agl.algorithms.prompts.archive import Archive
from agl.algorithms.prompts.asking import AskFailedError, OptimizerModel, Put
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.endings import OutageError, SearchEndedError, check_run
from agl.algorithms.prompts.markup import Questions
from agl.algorithms.prompts.rewriting import RefusedRewriteError, rewrite_from_answer
from agl.algorithms.prompts.scoring import Scorer, Scores, is_bad
from agl.algorithms.prompts.selection import rungs, standing
from agl.algorithms.prompts.spending import ELAPSED, Spent, spent_in_vain
from agl.errors import RunStoppedError
from agl.evaluation.counts import first_cause
from agl.evaluation.rollouts import abandon_rollouts, set_aside
from agl.types import Rollout

if TYPE_CHECKING:
    from agl.algorithms.prompts.search import PromptSearch

log = logging.getLogger(__name__)
T = TypeVar("T")

NUM_CANARIES = 2
"""Tasks on which the first prompts are run again where all new candidates fail: are they bad, or is something down?"""


@dataclass(kw_only=True)
class Search:
    """One search under way.

    Args:
        context: the run's parts.
        settings: of the search.
        scorer: runs candidates.
        optimizer: writes them.
        start: the prompts that the run begins with.
        feedback: numbers of training tasks that show what goes wrong.
        selection: numbers of training tasks that choose, in the order in which they are used.
        archive: where candidates are written down.
        questions: makes questions to the optimizer model out of POML files.
        earlier: what earlier processes of the run took, as far as it is not walked through again.
        clock: seconds, never going back.
    """

    context: RunContext
    settings: PromptSearch
    scorer: Scorer
    optimizer: OptimizerModel
    start: Candidate
    feedback: Sequence[int]
    selection: Sequence[int]
    archive: Archive
    questions: Questions = field(default_factory=Questions)
    earlier: Spent = field(default_factory=Spent)
    clock: Callable[[], float] = time.monotonic
    round: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    """Answers that could not be used, by cause."""
    repaired: Counter[str] = field(default_factory=Counter[str])
    candidates: dict[str, Candidate] = field(default_factory=dict[str, Candidate])
    """All that were scored, in the order in which they came."""
    more: str = ""
    """The setting with which a search that a budget has ended goes on; empty where none has."""
    _begun: float | None = None
    _num_canaries: int = 0

    @property
    def spent(self) -> Spent:
        """What the search took so far, in all processes of the run."""
        here = 0.0 if self._begun is None else self.clock() - self._begun
        spent = self.scorer.spent + self.optimizer.spent + self.earlier
        return replace(spent, seconds=self.earlier.seconds + here)

    @property
    def best(self) -> Candidate:
        """The candidate that stands highest on all selection tasks; of equals the one that came first."""
        complete = [one for one in self.candidates.values() if self._is_complete(one)]
        return max(complete, key=self.standing, default=self.start)

    def scores_of(self, candidate: Candidate) -> Scores:
        """Return the candidate's scores on the selection tasks."""
        return self.scorer.scores_of(candidate, self.selection)

    def standing(self, candidate: Candidate) -> float:
        """Return the number on the selection tasks by which candidates are compared; see ``selection.standing``."""
        return self._standing(self.scores_of(candidate))

    async def begin(self) -> None:
        """Score the first prompts on all selection tasks, check that they work, and say what is likely to come.

        Raises:
            RunStoppedError: they do not work, or a budget cannot be kept.
            SearchEndedError: the budget does not even allow this.
        """
        with self.working():
            await self.score([self.start], self.selection, phase="preflight")
        rollouts = [self.scorer.rollout_of(self.start, task) for task in self.selection]
        bad = [rollout for rollout in rollouts if is_bad(rollout)]
        if len(bad) > self.settings.max_bad_fraction * len(rollouts):
            await set_aside(self.context.store, bad)
            raise RunStoppedError(
                f"{len(bad)} of {len(rollouts)} rollouts with the first prompts gave no reward, more than"
                f" algorithm.max_bad_fraction={self.settings.max_bad_fraction}; the first: {first_cause(bad)}"
            )
        if self.settings.budget is not None:
            self.settings.budget.check_prices(self.spent)
        self.context.metrics.note(f"first prompts: {self.scores_of(self.start)}; {self._estimate()}")
        await self.report()

    async def run(self) -> str | None:
        """Search to the end; return why it ended early, None when it did not.

        Raises:
            RunStoppedError: the optimizer model, or what the agent needs, is down, and nothing better was found before.
        """
        try:
            with self.working():
                await self.settings.search(self)
            await self.optimizer.check_heard()
        except SearchEndedError as ended:
            reason, self.more = str(ended), ended.more
        except OutageError as down:
            if self.best is self.start:
                raise RunStoppedError(f"{down}; nothing better was found before") from down
            reason = str(down)
        else:
            return None
        self.context.metrics.note(f"the search ends: {reason}")
        return f"ended early: {reason}"

    async def score(
        self, candidates: Sequence[Candidate], tasks: Sequence[int], *, phase: str = "scoring"
    ) -> list[Scores]:
        """Score candidates on tasks within the budget, and write them down.

        Raises:
            SearchEndedError: the budget does not allow it, or ran out of time on the way.
            OutageError: all new candidates fail, and so do the first prompts when they are tried again.
        """
        fresh = [one for one in candidates if self.scorer.num_new([one], tasks)]
        work = partial(self.scorer.score, candidates, tasks, phase=phase)
        scores = await (self._in_time(work()) if await self.check_rollouts([(fresh, tasks)]) else work())
        for one in candidates:
            self.candidates.setdefault(one.candidate_id, one)
            self.archive.record(one, self.scores_of(one))
        if fresh:
            await self._note_time()
        await self._refuse_outage(fresh, tasks)
        return scores

    async def select(self, candidates: Sequence[Candidate], keep: int) -> list[Candidate]:
        """Return the best candidates by successive halving, best first.

        All are scored on a quarter of the selection tasks, the better half on half of them, the better half of these
        on all. Whoever is compared was run on the same tasks with the same seeds (Jamieson and Talwalkar 2016,
        arXiv:1502.07943, algorithm 1, with pairs in place of independent draws).

        Raises:
            SearchEndedError: the budget is spent, or all fail too often.
        """
        left = list({one.candidate_id: one for one in candidates}.values())
        for size in rungs(len(self.selection)):
            is_last = size == len(self.selection)
            if len(left) <= keep and not is_last:
                continue  # nobody to leave out
            scored = await self.score(left, self.selection[:size], phase=f"selecting {len(left)}")
            standings = {one.candidate_id: self._standing(s) for one, s in zip(left, scored, strict=True)}
            order = sorted(left, key=lambda one: standings[one.candidate_id], reverse=True)
            working = [one for one in order if standings[one.candidate_id] > -math.inf]
            if not working:
                cause = next(iter(scored[0].failed), "no reward")
                raise SearchEndedError(f"all {len(left)} candidates fail too often; the first: {cause}")
            left = working if is_last else working[: max(keep, math.ceil(len(left) / 2))]
        return left[:keep]

    async def asked(
        self, ask_id: str, messages: Sequence[Mapping[str, Any]], *, model: str | None = None
    ) -> str | None:
        """Ask the optimizer model within the budget; None where it gave nothing that can be used (counted).

        Raises:
            SearchEndedError: the budget is spent.
            OutageError: the model is dead.
        """

        async def within_budget(put: Put) -> Rollout:
            await check_run(self.context)
            self.check_budget(0, num_questions=self.optimizer.num_open)
            return await self._in_time(put())

        try:
            return await self.optimizer.ask(ask_id, messages, model=model, around=within_budget)
        except AskFailedError as failed:
            self.refused[failed.cause] += 1
            log.info("no answer to %s: %s: %s", ask_id, failed.cause, failed)
            return None

    async def rewritten(
        self,
        ask_id: str,
        messages: Sequence[Mapping[str, Any]],
        candidate: Candidate,
        name: str,
        *,
        made_by: str,
        model: str | None = None,
    ) -> Candidate | None:
        """Ask the optimizer model for a new text of one prompt; None where its answer cannot be used (counted).

        Raises:
            SearchEndedError: the budget is spent.
            OutageError: the model is dead.
        """
        answer = await self.asked(ask_id, messages, model=model)
        return None if answer is None else self.taken(answer, candidate, name, made_by=made_by)

    def taken(self, answer: str, candidate: Candidate, name: str, *, made_by: str) -> Candidate | None:
        """Return the candidate with a prompt taken out of an answer; None where it cannot be used (counted)."""
        try:
            rewrite = rewrite_from_answer(
                answer, candidate.prompts[name], repair=self.settings.repair_rewrites
            )
        except RefusedRewriteError as failed:
            self.refused[failed.cause] += 1
            log.info("no rewrite of %s: %s: %s", name, failed.cause, failed)
            return None
        self.repaired.update(rewrite.repairs)
        return candidate.changed(name, rewrite.text, made_by=made_by)

    async def check_rollouts(self, wanted: Sequence[tuple[Sequence[Candidate], Sequence[int]]]) -> bool:
        """Check that candidates may be run on tasks; return whether any of it is still to be paid for.

        What a resumed run finds in the store is free, however little of the budget is left.

        Raises:
            SearchEndedError: the budget does not allow it.
        """
        if not sum([await self.scorer.num_unpaid(candidates, tasks) for candidates, tasks in wanted]):
            return False
        await check_run(self.context)
        self.check_budget(sum(self.scorer.num_new(candidates, tasks) for candidates, tasks in wanted))
        return True

    def check_budget(self, num_rollouts: int, *, num_questions: int = 0) -> None:
        """Check that this many more rollouts and questions are allowed, by what the ones so far took.

        Raises:
            SearchEndedError: they are not; the message names the limit.
            RunStoppedError: there is a limit of cost, and calls whose price nobody knows.
        """
        budget = self.settings.budget
        if budget is None:
            return
        agents, optimizer = self.scorer.spent, self.optimizer.spent
        more = agents.of_calls(num_rollouts / max(agents.rollouts, 1))
        more += optimizer.of_calls(num_questions / max(self.optimizer.num_asked, 1))
        budget.check(self.spent, replace(more, rollouts=num_rollouts))

    async def report(self) -> None:
        """Report the round that has ended and begin the next one."""
        spent, best = self.spent, self.scores_of(self.best)
        values = {
            "search/candidates": float(len(self.candidates)),
            "search/refused": float(self.refused.total()),
            "search/repaired": float(self.repaired.total()),
            "spent/rollouts": float(spent.rollouts),
            "spent/calls": float(spent.calls),
            "spent/tokens": float(spent.tokens),
            "spent/cost_usd": spent.cost_usd,
            ELAPSED: spent.seconds,
        }
        if best.mean is not None:
            values["search/best_reward"] = best.mean
        values |= self.scorer.counts.metrics()
        await self.context.report(self.round, values)
        self.round += 1

    def notes(self) -> list[str]:
        """Return what a person should know at the end: what it took, and what could not be used."""
        notes = [f"the search took {self.spent}"]
        if self.refused:
            causes = ", ".join(f"{cause} {count}" for cause, count in self.refused.most_common())
            notes.append(f"{self.refused.total()} answers of the optimizer model could not be used: {causes}")
        if self.repaired:
            causes = ", ".join(f"{cause} {count}" for cause, count in self.repaired.most_common())
            notes.append(f"{self.repaired.total()} rewrites were mended: {causes}")
        return notes

    @contextmanager
    def working(self) -> Generator[None]:
        """Let the budget's time run while the block lasts."""
        self._begun = self.clock()
        try:
            yield
        finally:
            self.earlier, self._begun = replace(self.earlier, seconds=self.spent.seconds), None

    async def _in_time(self, work: Awaitable[T]) -> T:
        """Wait for it within the budget's time; then give up what is under way.

        Raises:
            SearchEndedError: the time is up.
        """
        minutes = self.settings.budget and self.settings.budget.max_minutes
        if minutes is None:
            return await work
        limit = asyncio.timeout(60 * minutes - self.spent.seconds)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        store, run_id = self.context.store, self.context.run_id
        left = await abandon_rollouts(store, run_id=run_id)
        self.earlier = replace(await spent_in_vain(store, run_id), seconds=self.earlier.seconds)
        raise SearchEndedError(
            f"budget.max_minutes={minutes:g} is spent; {left} rollouts were given up",
            more=f"budget.max_minutes={2 * minutes:g}",
        )

    async def _note_time(self) -> None:
        """Write down how long the search has been at work, for a process that goes on with it."""
        await self.context.keep(self.round, {ELAPSED: self.spent.seconds})

    async def _refuse_outage(self, fresh: Sequence[Candidate], tasks: Sequence[int]) -> None:
        """Check that something works where every new candidate fails too often, by running the first prompts again.

        Raises:
            OutageError: they fail as well. All these rollouts are run again when the run is resumed.
        """
        working = any(self._standing(self.scorer.scores_of(one, tasks)) > -math.inf for one in fresh)
        if working or fresh in ([], [self.start]):  # who asks for the first prompts alone says so
            return
        self._num_canaries += 1
        canaries = await self._in_time(
            self.scorer.run_again(self.start, tasks[:NUM_CANARIES], f"canary-{self._num_canaries}")
        )
        if not all(map(is_bad, canaries)):
            return
        rollouts = [self.scorer.rollout_of(one, task) for one in fresh for task in tasks]
        await set_aside(self.context.store, [*canaries, *filter(is_bad, rollouts)])
        raise OutageError(
            f"the agent fails with the first prompts too, which worked before: {first_cause(canaries)}"
        )

    def _estimate(self) -> str:
        """What the search is likely to take at most, by what the first prompts took."""
        mean, most = self.scorer.spent, self.settings.most_rollouts(self)
        share = most / max(mean.rollouts, 1)
        is_priced = mean.calls != mean.unpriced_calls
        cost = f"${mean.cost_usd * share:.2f} of the agent's" if is_priced else "cost unknown"
        return (
            f"the search takes at most {most} rollouts, likely {mean.calls * share:.0f} calls,"
            f" {mean.tokens * share:.0f} tokens, {cost}, beside the optimizer model's own"
        )

    def _standing(self, scores: Scores) -> float:
        return standing(
            scores, worst=self.scorer.worst_reward, max_bad_fraction=self.settings.max_bad_fraction
        )

    def _is_complete(self, candidate: Candidate) -> bool:
        return len(self.scores_of(candidate).rewards) == len(self.selection)


async def side_by_side(works: Sequence[Awaitable[T]]) -> list[T]:
    """Do all at once, wait for every one, and return their results in order; then raise the first error, if any.

    The others are not cancelled on an error: what they asked for is paid for, and in the store for a resumed run.
    """
    results = await asyncio.gather(*works, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise errors[0]
    return [result for result in results if not isinstance(result, BaseException)]
