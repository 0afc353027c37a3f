"""PromptSearch: what every search for better prompts does, whatever makes its candidates.

Tasks of the training set are split once: some show what goes wrong (*feedback*), the others choose between candidates
(*selection*). The validation tasks are touched twice, before and after, so the reported change is not one that the
search was fitted to.

Nothing needs a checkpoint: rollouts and questions have ids made of what they are, so a resumed run walks the same way
through the answers in the store, for free, and goes on where they end.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from agl.algorithms.base import RunContext, RunResult
from agl.algorithms.prompts.archive import Archive
from agl.algorithms.prompts.asking import AskFailedError, OptimizerDownError, OptimizerModel
from agl.algorithms.prompts.candidate import Candidate, first_candidate
from agl.algorithms.prompts.rewriting import RefusedRewriteError, rewrite_from_answer
from agl.algorithms.prompts.scoring import Scorer, Scores
from agl.algorithms.prompts.spending import Budget, Spent
from agl.algorithms.sampling import rollout_seed
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import first_cause
from agl.evaluation.evaluate import Evaluation, evaluate
from agl.evaluation.rollouts import set_aside
from agl.learners.base import Learner
from agl.metrics.base import Progress
from agl.types import MetricQuery, RolloutConfig

log = logging.getLogger(__name__)

MIN_SELECTION = 2


class SearchEndedError(Exception):
    """The search ends here, with the best so far: a budget is spent, or going on makes no sense."""


@dataclass(frozen=True, kw_only=True)
class PromptSearch(ABC):
    """Settings of all searches.

    Args:
        prompts: names of the resources to improve; null is every prompt there is.
        optimizer_model: the model that writes, one that the proxy has (``proxy.endpoints``); null is the policy itself.
        optimizer_max_tokens: longest answer of the optimizer model.
        optimizer_timeout_seconds: longest wait for one.
        temperature: of the agent's calls.
        max_tokens: longest answer of one of the agent's calls.
        sampling: further request parameters of the agent's calls.
        val_batch_size: training tasks that choose between candidates; the others show what goes wrong.
        repair_rewrites: mend a rewrite's braces and lost placeholders; else it is refused.
        evaluate_repeats: rollouts of each validation task, before and after.
        max_bad_fraction: a candidate with a larger fraction of tasks without a reward is out; so is the run when the
            prompts that it begins with are.
        rollout_timeout_seconds: longest time of one attempt.
        max_attempts: executions of a rollout that failed.
        budget: hard limits of the search; null is none.
    """

    prompts: list[str] | None = None
    optimizer_model: str | None = None
    optimizer_max_tokens: int = 4096
    optimizer_timeout_seconds: float = 300.0
    temperature: float = 0.0
    max_tokens: int = 1024
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    val_batch_size: int = 16
    repair_rewrites: bool = True
    evaluate_repeats: int = 1
    max_bad_fraction: float = 0.5
    rollout_timeout_seconds: float = 300.0
    max_attempts: int = 2
    budget: Budget | None = None

    def __post_init__(self) -> None:
        for name in ("optimizer_max_tokens", "max_tokens", "evaluate_repeats", "max_attempts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("optimizer_timeout_seconds", "rollout_timeout_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0")
        if self.val_batch_size < MIN_SELECTION:
            raise ConfigError(f"val_batch_size={self.val_batch_size} must be at least {MIN_SELECTION}")
        if self.temperature < 0:
            raise ConfigError(f"temperature={self.temperature} must not be negative")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be between 0 and 1")

    @property
    def needs_learner(self) -> bool:
        """It moves no weights."""
        return False

    def check(self, learner: Learner | None, *, trainable: bool) -> None:  # noqa: B027 - nothing to refuse
        """Accept everything: it asks for answers only."""

    @abstractmethod
    async def search(self, search: Search) -> None:
        """Make candidates and score them; ``search.best`` follows from what was scored on all selection tasks."""

    @abstractmethod
    def most_rollouts(self, search: Search) -> int:
        """Return how many rollouts the search can take at most, for the estimate before it begins."""

    def agent_sampling(self) -> dict[str, Any]:
        """Request parameters of the agent's calls."""
        return {
            "top_p": 1.0,
            **self.sampling,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }

    def optimizer_sampling(self) -> dict[str, Any]:
        """Request parameters of the optimizer model's answers."""
        return {"temperature": 1.0, "max_tokens": self.optimizer_max_tokens}

    def rollout_config(self) -> RolloutConfig:
        """Limits of each rollout."""
        return RolloutConfig(
            timeout_seconds=self.rollout_timeout_seconds,
            unresponsive_seconds=60.0,
            max_attempts=self.max_attempts,
        )

    async def run(self, context: RunContext) -> RunResult:
        """Search, and evaluate the prompts on the validation tasks before and after."""
        start = first_candidate(context.resources, self.prompts)
        feedback, selection = split_tasks(len(context.train_tasks), self.val_batch_size, context.seed)
        scorer = Scorer(context, sampling=self.agent_sampling(), config=self.rollout_config())
        if context.resume:
            context.metrics.rewind(-1)
        async with OptimizerModel(
            context,
            model=self.optimizer_model,
            sampling=self.optimizer_sampling(),
            timeout_seconds=self.optimizer_timeout_seconds,
        ) as optimizer:
            search = Search(
                context=context,
                settings=self,
                scorer=scorer,
                optimizer=optimizer,
                start=start,
                feedback=feedback,
                selection=selection,
                archive=Archive(context.run_dir),
                already_seconds=await _seconds_so_far(context),
            )
            before = await self._evaluate(context, start)
            ending = await search.run()
        return await self._result(search, before, ending)

    async def _result(self, search: Search, before: list[Evaluation], ending: str | None) -> RunResult:
        context, best = search.context, search.best
        resources_id = await context.policy.resources_id(
            f"best-{best.candidate_id}", self.agent_sampling(), resources=best.prompts
        )
        search.archive.save_best(best, search.scores_of(best), resources_id)
        after = before if best is search.start else await self._evaluate(context, best)
        notes = [*([ending] if ending else []), *search.notes()]
        context.metrics.progress(Progress(phase="done"))
        return RunResult(
            before=before,
            after=after,
            counts=search.scorer.counts,
            iterations=search.round,
            prompts_dir=search.archive.folder,
            prompts=dict(best.prompts),
            diagnosis=notes,
        )

    async def _evaluate(self, context: RunContext, candidate: Candidate) -> list[Evaluation]:
        if not context.val_tasks:
            return []
        name = "val/reward" if self.temperature > 0 else "val/reward_greedy"
        sampling = self.agent_sampling()
        evaluation = await evaluate(
            context.store,
            context.val_tasks,
            name=name,
            id_prefix=f"{context.run_id}-val-{candidate.candidate_id}",
            resources_id=await context.policy.resources_id(
                f"val-{candidate.candidate_id}", sampling, resources=candidate.prompts
            ),
            seed=rollout_seed(context.seed, "val"),
            sampling=sampling,
            run_id=context.run_id,
            repeats=self.evaluate_repeats,
            config=self.rollout_config(),
            on_progress=lambda done, total: context.metrics.progress(
                Progress(phase="evaluating", done=done, total=total)
            ),
        )
        return [evaluation]


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
        already_seconds: wall time of earlier processes of the run.
    """

    context: RunContext
    settings: PromptSearch
    scorer: Scorer
    optimizer: OptimizerModel
    start: Candidate
    feedback: Sequence[int]
    selection: Sequence[int]
    archive: Archive
    already_seconds: float = 0.0
    round: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    """Rewrites that were not taken, by cause."""
    repaired: Counter[str] = field(default_factory=Counter[str])
    candidates: dict[str, Candidate] = field(default_factory=dict[str, Candidate])
    """All that were scored, in the order in which they came."""
    _begun: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> Spent:
        """What the search took so far, in all processes of the run."""
        return replace(
            self.scorer.spent + self.optimizer.spent,
            seconds=self.already_seconds + time.monotonic() - self._begun,
        )

    @property
    def best(self) -> Candidate:
        """The candidate with the highest mean over all selection tasks; of equals the one that came first."""
        complete = [one for one in self.candidates.values() if self._is_complete(one)]
        return max(complete, key=self.standing, default=self.start)

    def scores_of(self, candidate: Candidate) -> Scores:
        """Return the candidate's scores on the selection tasks."""
        return self.scorer.scores_of(candidate, self.selection)

    def standing(self, candidate: Candidate) -> float:
        """Return the mean over the selection tasks; minus infinity for one that fails too often."""
        return _standing(self.scores_of(candidate), self.settings.max_bad_fraction)

    async def run(self) -> str | None:
        """Search to the end; return why it ended early, None when it did not.

        Raises:
            RunStoppedError: the prompts that the run begins with do not work, or the optimizer model is dead and
                nothing better was found before.
        """
        try:
            await self._start()
            await self.settings.search(self)
        except SearchEndedError as ended:
            self.context.metrics.note(f"the search ends: {ended}")
            return f"ended early: {ended}"
        except OptimizerDownError as down:
            if self.best is self.start:
                raise RunStoppedError(f"{down}; nothing better was found before") from down
            self.context.metrics.note(f"the search ends: {down}")
            return f"ended early: {down}"
        return None

    async def score(
        self, candidates: Sequence[Candidate], tasks: Sequence[int], *, phase: str = "scoring"
    ) -> list[Scores]:
        """Score candidates on tasks within the budget, and write them down.

        Raises:
            SearchEndedError: the budget does not allow it.
        """
        self.check_budget(self.scorer.num_new(candidates, tasks))
        scores = await self.scorer.score(candidates, tasks, phase=phase)
        for one in candidates:
            self.candidates.setdefault(one.candidate_id, one)
            self.archive.record(one, self.scores_of(one))
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
        for size in _rungs(len(self.selection)):
            tasks = self.selection[:size]
            scored = await self.score(left, tasks, phase=f"selecting {len(left)}")
            order = sorted(
                zip(left, scored, strict=True),
                key=lambda pair: _standing(pair[1], self.settings.max_bad_fraction),
                reverse=True,
            )
            working = [one for one, scores in order if scores.bad_fraction <= self.settings.max_bad_fraction]
            if not working:
                cause = next(iter(scored[0].failed), "no reward")
                raise SearchEndedError(f"all {len(left)} candidates fail too often; the first: {cause}")
            left = working[: max(keep, math.ceil(len(left) / 2))] if size < len(self.selection) else working
        return left[:keep]

    async def rewritten(
        self,
        ask_id: str,
        messages: Sequence[Mapping[str, Any]],
        candidate: Candidate,
        name: str,
        *,
        made_by: str,
    ) -> Candidate | None:
        """Ask the optimizer model for a new text of one prompt; None where its answer cannot be used (counted).

        Raises:
            SearchEndedError: the budget is spent.
            OptimizerDownError: the model is dead.
        """
        self.check_budget(0)
        try:
            answer = await self.optimizer.ask(ask_id, messages)
            rewrite = rewrite_from_answer(
                answer, candidate.prompts[name], repair=self.settings.repair_rewrites
            )
        except (AskFailedError, RefusedRewriteError) as failed:
            self.refused[failed.cause] += 1
            log.info("no candidate from %s: %s: %s", ask_id, failed.cause, failed)
            return None
        self.repaired.update(rewrite.repairs)
        return candidate.changed(name, rewrite.text, made_by=made_by)

    def check_budget(self, num_rollouts: int) -> None:
        """Check that this many more rollouts are allowed.

        Raises:
            SearchEndedError: they are not; the message names the limit.
        """
        budget = self.settings.budget
        if budget is None:
            return
        spent = self.spent
        if num_rollouts > budget.rollouts_left(spent):
            raise SearchEndedError(
                f"the next {num_rollouts} rollouts would pass budget.max_rollouts={budget.max_rollouts}"
                f" (spent: {spent})"
            )
        mean = self.scorer.spent
        share = num_rollouts / mean.rollouts if mean.rollouts else 0.0
        likely = replace(
            spent,
            calls=spent.calls + round(mean.calls * share),
            tokens=spent.tokens + round(mean.tokens * share),
            cost_usd=spent.cost_usd + mean.cost_usd * share,
        )
        limit = budget.exceeded_by(likely)
        if limit is not None:
            raise SearchEndedError(f"budget.{limit} is spent, or would be (spent: {spent})")

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
            "time/elapsed_seconds": spent.seconds,
        }
        if best.mean is not None:
            values["search/best_reward"] = best.mean
        values |= self.scorer.counts.metrics()
        self.context.metrics.metrics(self.round, values)
        await self.context.store.add_metrics(self.context.run_id, self.round, values)
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

    async def _start(self) -> None:
        """Score the first prompts on all selection tasks, check that they work, and say what is likely to come."""
        await self.score([self.start], self.selection, phase="preflight")
        scores = self.scores_of(self.start)
        if scores.bad_fraction > self.settings.max_bad_fraction:
            rollouts = [self.scorer.rollout_of(self.start, task) for task in self.selection]
            bad = [one for one in rollouts if one.status != "succeeded" or one.reward is None]
            await set_aside(self.context.store, bad)
            raise RunStoppedError(
                f"{len(bad)} of {len(rollouts)} rollouts with the first prompts gave no reward, more than"
                f" algorithm.max_bad_fraction={self.settings.max_bad_fraction}; the first: {first_cause(bad)}"
            )
        self.context.metrics.note(f"first prompts: {scores}; {self._estimate()}")
        await self.report()

    def _estimate(self) -> str:
        """What the search is likely to take at most, by what the first prompts took."""
        mean, most = self.scorer.spent, self.settings.most_rollouts(self)
        share = most / max(mean.rollouts, 1)
        cost = (
            "cost unknown"
            if mean.calls == mean.unpriced_calls
            else f"${mean.cost_usd * share:.2f} of the agent's"
        )
        return (
            f"the search takes at most {most} rollouts, likely {mean.calls * share:.0f} calls,"
            f" {mean.tokens * share:.0f} tokens, {cost}, beside the optimizer model's own"
        )

    def _is_complete(self, candidate: Candidate) -> bool:
        return len(self.scores_of(candidate).rewards) == len(self.selection)


def split_tasks(num_tasks: int, num_selection: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the tasks for feedback and for selection: drawn once, without overlap.

    Raises:
        ConfigError: there are too few tasks.
    """
    if num_tasks < num_selection + 1:
        raise ConfigError(
            f"algorithm.val_batch_size={num_selection} leaves none of {num_tasks} training tasks to learn from;"
            " give more tasks, or a smaller one"
        )
    order = list(range(num_tasks))
    Random(f"{seed}/split").shuffle(order)
    return order[num_selection:], order[:num_selection]


def _rungs(num_tasks: int) -> list[int]:
    return sorted({max(MIN_SELECTION, num_tasks // 4), max(MIN_SELECTION, num_tasks // 2), num_tasks})


def _standing(scores: Scores, max_bad_fraction: float) -> float:
    if scores.mean is None or scores.bad_fraction > max_bad_fraction:
        return -math.inf
    return scores.mean


async def _seconds_so_far(context: RunContext) -> float:
    """How long earlier processes of a resumed run were at work: up to the last number that they reported."""
    if not context.resume:
        return 0.0
    query = MetricQuery(run_id=context.run_id, names=("time/elapsed_seconds",))
    return max((point.value for point in (await context.store.query_metrics(query)).items), default=0.0)
