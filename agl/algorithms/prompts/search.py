"""PromptSearch: what every search for better prompts does, whatever makes its candidates.

Tasks of the training set are split once: some show what goes wrong (*feedback*), the others choose between candidates
(*selection*). The validation tasks are touched twice, before and after, so the reported change is not one that the
search was fitted to.

Nothing needs a checkpoint: rollouts and questions have ids made of what they are, so a resumed run walks the same way
through the answers in the store, for free, and goes on where they end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from agl.algorithms.base import RunContext, RunResult
from agl.algorithms.prompts.archive import Archive
from agl.algorithms.prompts.asking import OptimizerModel
from agl.algorithms.prompts.candidate import Candidate, first_candidate
from agl.algorithms.prompts.endings import SearchEndedError
from agl.algorithms.prompts.ongoing import Search
from agl.algorithms.prompts.scoring import Scorer, is_bad
from agl.algorithms.prompts.selection import MIN_SELECTION, split_tasks
from agl.algorithms.prompts.spending import Budget, Spent, seconds_so_far, spent_in_vain
from agl.algorithms.retries import RetrySettings
from agl.algorithms.sampling import rollout_seed
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import first_cause
from agl.evaluation.evaluate import Evaluation, evaluate
from agl.evaluation.rollouts import set_aside
from agl.learners.base import Learner
from agl.metrics.base import Progress

__all__ = ["PromptSearch", "Search", "SearchEndedError"]
_OWN_SETTINGS = {"temperature": "temperature", "max_tokens": "max_tokens", "seed": "seed of the run"}


@dataclass(frozen=True, kw_only=True)
class PromptSearch(RetrySettings, ABC):
    """Settings of all searches; those of a single rollout are in ``RetrySettings``.

    Args:
        prompts: names of the resources to improve; null is every prompt there is.
        optimizer_model: the model that writes, one that the proxy has (``proxy.endpoints``); null is the policy itself.
        optimizer_max_tokens: longest answer of the optimizer model; null sends no limit.
        optimizer_timeout_seconds: longest wait for one.
        temperature: of the agent's calls; null leaves temperature and top_p to the agent and the model.
        max_tokens: longest answer of one of the agent's calls; null likewise.
        sampling: further request parameters of the agent's calls.
        val_batch_size: training tasks that choose between candidates; the others show what goes wrong.
        repair_rewrites: mend a rewrite's braces and lost placeholders; else it is refused.
        evaluate_repeats: rollouts of each validation task, before and after.
        max_bad_fraction: a candidate with a larger fraction of tasks without a reward is out; so is the run when the
            prompts that it begins with are.
        budget: hard limits of the search; null is none.
    """

    prompts: list[str] | None = None
    optimizer_model: str | None = None
    optimizer_max_tokens: int | None = 4096
    optimizer_timeout_seconds: float = 300.0
    temperature: float | None = 0.0
    max_tokens: int | None = 1024
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    val_batch_size: int = 16
    repair_rewrites: bool = True
    evaluate_repeats: int = 1
    max_bad_fraction: float = 0.5
    budget: Budget | None = None

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        for name in ("optimizer_max_tokens", "max_tokens", "evaluate_repeats"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        if not self.optimizer_timeout_seconds > 0:
            raise ConfigError(f"optimizer_timeout_seconds={self.optimizer_timeout_seconds} must be above 0")
        if self.val_batch_size < MIN_SELECTION:
            raise ConfigError(f"val_batch_size={self.val_batch_size} must be at least {MIN_SELECTION}")
        if self.temperature is not None and self.temperature < 0:
            raise ConfigError(f"temperature={self.temperature} must not be negative")
        for name, setting in _OWN_SETTINGS.items():
            if name in self.sampling:
                raise ConfigError(f"sampling.{name} has a setting of its own: {setting}")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be between 0 and 1")

    @property
    def needs_learner(self) -> bool:
        """It moves no weights."""
        return False

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Accept everything: it asks for answers only."""

    @abstractmethod
    async def search(self, search: Search) -> None:
        """Make candidates and score them; ``search.best`` follows from what was scored on all selection tasks."""

    @abstractmethod
    def most_rollouts(self, search: Search) -> int:
        """Return how many rollouts the search can take at most, for the estimate before it begins."""

    def further(self) -> str:
        """Return the setting with which a resumed run searches on, as ``beam_rounds=6``; empty where there is none."""
        return ""

    def agent_sampling(self) -> dict[str, Any]:
        """Request parameters that are forced on the agent's calls."""
        given = {"top_p": None if self.temperature is None else 1.0, **self.sampling}
        return _set(given, temperature=self.temperature, max_tokens=self.max_tokens)

    def optimizer_sampling(self) -> dict[str, Any]:
        """Request parameters of the optimizer model's answers."""
        return self.sampling_at(1.0)

    def sampling_at(self, temperature: float | None) -> dict[str, Any]:
        """Request parameters of the optimizer model's answers at a temperature."""
        return _set({}, temperature=temperature, max_tokens=self.optimizer_max_tokens)

    async def run(self, context: RunContext) -> RunResult:
        """Search, and evaluate the prompts on the validation tasks before and after."""
        start = first_candidate(context.resources, self.prompts)
        feedback, selection = split_tasks(len(context.train_tasks), self.val_batch_size, context.seed)
        earlier = Spent()
        if context.resume:
            context.metrics.rewind(-1)
            earlier = await spent_in_vain(context.store, context.run_id)
            earlier += Spent(seconds=await seconds_so_far(context.store, context.run_id, context.first_step))
        async with OptimizerModel(
            context,
            model=self.optimizer_model,
            sampling=self.optimizer_sampling(),
            timeout_seconds=self.optimizer_timeout_seconds,
        ) as optimizer:
            search = Search(
                context=context,
                settings=self,
                scorer=Scorer(context, sampling=self.agent_sampling(), config=self.rollout_config()),
                optimizer=optimizer,
                start=start,
                feedback=feedback,
                selection=selection,
                archive=Archive(context.run_dir),
                earlier=earlier,
            )
            before, ending = await self._searched(search)
        return await self._result(search, before, ending)

    async def _searched(self, search: Search) -> tuple[list[Evaluation], str | None]:
        """The evaluation of the first prompts, once these are seen to work, and why the search ended early."""
        try:
            await search.begin()
        except SearchEndedError as ended:
            search.more = ended.more
            return await self._evaluate(search.context, search.start), f"ended early: {ended}"
        return await self._evaluate(search.context, search.start), await search.run()

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
            first_prompts=dict(search.start.prompts),
            further=search.more or self.further(),
            diagnosis=notes,
        )

    async def _evaluate(self, context: RunContext, candidate: Candidate) -> list[Evaluation]:
        if not context.val_tasks:
            return []
        sampling = self.agent_sampling()
        evaluation = await evaluate(
            context.store,
            context.val_tasks,
            name="val/reward_greedy" if self.temperature == 0 else "val/reward",
            id_prefix=f"{context.prefix}-val-{candidate.candidate_id}",
            resources_id=await context.policy.resources_id(
                f"val-{candidate.candidate_id}", sampling, resources=candidate.prompts
            ),
            seed=rollout_seed(context.seed, "val"),
            sampling=sampling,
            run_id=context.run_id,
            repeats=self.evaluate_repeats,
            config=self.rollout_config(),
            on_wait=lambda waited: context.metrics.progress(
                Progress(phase="evaluating", done=waited.done, total=waited.total, waiting_for=waited.words)
            ),
        )
        await self._check(context, evaluation)
        return [evaluation]

    async def _check(self, context: RunContext, evaluation: Evaluation) -> None:
        """Stop where an evaluation says more about a broken service than about the prompts; resumed, it runs again."""
        rollouts = [rollout for repeats in evaluation.rollouts for rollout in repeats]
        bad = [rollout for rollout in rollouts if is_bad(rollout)]
        if len(bad) > self.max_bad_fraction * len(rollouts):
            await set_aside(context.store, bad)
            raise RunStoppedError(
                f"{len(bad)} of {len(rollouts)} rollouts on the validation tasks gave no reward, more than"
                f" algorithm.max_bad_fraction={self.max_bad_fraction}; the first: {first_cause(bad)}"
            )


def _set(given: dict[str, Any], **values: float | None) -> dict[str, Any]:
    """The parameters that have a value: what is null is not sent, since some models refuse some parameters."""
    return {name: value for name, value in {**given, **values}.items() if value is not None}
