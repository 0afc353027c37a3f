"""Algorithms of a user's own: an async function gets the run's parts by name and returns what agents shall use.

Around the function the run is like any other: the agent is evaluated on the validation tasks before and after, what
was chosen is published, and every rollout has an id under which a resumed run finds it in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from agl.agents.binding import BoundFunction, check_function, function_name
from agl.agents.load import load_object
from agl.algorithms.base import Algorithm, RunContext, RunResult
from agl.algorithms.prompts.archive import Archive
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.scoring import Scores, is_bad
from agl.algorithms.retries import RetrySettings
from agl.algorithms.roll_out import RollOut, digest_of
from agl.algorithms.sampling import rollout_seed
from agl.data import ChosenTasks
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import RolloutCounts, cause_of, count_rollouts, first_cause
from agl.evaluation.evaluate import Evaluation, evaluate
from agl.evaluation.rollouts import ABANDONED, abandon_rollouts, set_aside
from agl.learners.base import Learner
from agl.metrics.base import Progress
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import NamedResources, PromptTemplate, Resource, RolloutQuery

F = TypeVar("F", bound=Callable[..., Any])

GIVEN = ("store", "data", "resources", "roll_out", "report", "policy", "learner", "run_id", "seed", "context")
"""What an algorithm may take by name."""
_OWN_SETTINGS = {"temperature": "temperature", "max_tokens": "max_tokens", "seed": "seed of the run"}


def algo(function: F) -> F:
    """Say that ``agl`` may run this async function as an algorithm. The function itself stays as it is.

    It takes by name any of these, and resources and settings by their own names:

    - ``store``: the queue and record; ``data``: the tasks, ``data.train`` and ``data.val``.
    - ``resources``: what agents get at first, by name: the model, prompt templates, whatever the run gives them.
    - ``roll_out``: ``await roll_out(tasks, {name: resource})`` runs the agent and returns the rollouts.
    - ``report``: ``await report(step, {"train/reward": 0.5})`` keeps numbers.
    - ``policy``, ``learner``: weights; taking ``learner`` says that the algorithm moves them.
    - ``run_id``, ``seed``, ``context``: the run, and all of its parts.

    It returns what agents shall get from now on: resources by name (those left out stay), ``NamedResources`` that it
    published, their id, or None where nothing but weights has changed.

    Raises:
        ConfigError: not async, or a parameter that cannot be given by name.
    """
    check_algorithm(function)
    return function


def check_algorithm(function: Callable[..., Any]) -> None:
    """Check that a function can be run as an algorithm.

    Raises:
        ConfigError: not async, or a parameter that cannot be given by name.
    """
    check_function(function)
    if not BoundFunction(function, given=GIVEN).is_async:
        raise ConfigError(f"algorithm {function_name(function)} must be an async function (async def)")


def as_algorithm(value: object) -> Algorithm:
    """Return an algorithm as it is, an async function as an algorithm, and what ``file.py:name`` names as such.

    Raises:
        ConfigError: none of these.
    """
    if isinstance(value, str):
        value = load_object(value)
    if isinstance(value, Algorithm) and not isinstance(value, type):
        return value
    if callable(value) and not isinstance(value, type):
        return FunctionAlgorithm(function=value)
    kind = f"class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise ConfigError(f"a {kind} is not an algorithm: give one of agl.algorithms, or an async function")


@dataclass(frozen=True, kw_only=True)
class FunctionAlgorithm(RetrySettings):
    """Runs a user's function. Limits of a rollout are in ``RetrySettings``.

    Args:
        function: async; see ``algo``.
        settings: values for the function's own parameters.
        temperature: of the agent's calls; null leaves temperature and top_p to the agent and the model.
        max_tokens: longest answer of one of the agent's calls; null likewise.
        sampling: further request parameters of the agent's calls.
        evaluate_repeats: rollouts of each validation task, before and after.
        max_bad_fraction: the run stops when more rollouts than this give no reward.
    """

    function: Callable[..., Any]
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    temperature: float | None = 0.0
    max_tokens: int | None = 1024
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    evaluate_repeats: int = 1
    max_bad_fraction: float = 0.5

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        check_algorithm(self.function)
        self._bound()
        for name in ("max_tokens", "evaluate_repeats"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        if self.temperature is not None and self.temperature < 0:
            raise ConfigError(f"temperature={self.temperature} must not be negative")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be from 0 to 1")
        for name, setting in _OWN_SETTINGS.items():
            if name in self.sampling:
                raise ConfigError(f"sampling.{name} has a setting of its own: {setting}")

    @property
    def needs_learner(self) -> bool:
        """Whether the function takes a learner."""
        return self._bound().takes("learner")

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Refuse to move weights that nobody holds."""
        if self.needs_learner and (learner is None or not trainable):
            raise ConfigError(
                f"algorithm {function_name(self.function)} takes a learner: it needs one, and an engine that takes"
                " new weights (learner=torch inference=transformers)"
            )

    def agent_sampling(self) -> dict[str, Any]:
        """Request parameters that are forced on the agent's calls; what is null is not sent."""
        top_p = None if self.temperature is None else 1.0
        given = {"top_p": top_p, **self.sampling}
        given |= {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {name: value for name, value in given.items() if value is not None}

    async def run(self, context: RunContext) -> RunResult:
        """Evaluate, call the function, publish what it chose, evaluate again."""
        if context.resume:
            context.metrics.rewind(-1)
        report = _Report(context)
        first: dict[str, Resource] = {
            **context.resources,
            context.policy.resource_name: context.policy.llm(self.agent_sampling()),
        }
        before = await self._evaluate(context, first)
        await report.evaluations(before)
        roll_out = RollOut(
            context, first, config=self.rollout_config(), max_bad_fraction=self.max_bad_fraction
        )
        given = {
            "store": context.store,
            "data": ChosenTasks(train=list(context.train_tasks), val=list(context.val_tasks)),
            "resources": dict(first),
            "roll_out": roll_out,
            "report": report,
            "policy": context.policy,
            "learner": context.learner,
            "run_id": context.run_id,
            "seed": context.seed,
            "context": context,
        }
        answer = await self.function(**self._bound().arguments(given, first))
        chosen = await self._chosen(context.store, answer)
        return await self._result(context, report, before, first, {**first, **chosen})

    async def _result(
        self,
        context: RunContext,
        report: _Report,
        before: list[Evaluation],
        first: Mapping[str, Resource],
        last: Mapping[str, Resource],
    ) -> RunResult:
        notes: list[str] = []
        left = await abandon_rollouts(context.store, run_id=context.run_id)
        if left:
            notes.append(f"{left} rollouts that the algorithm did not wait for were cancelled")
        counts = await _counts_of(context)
        version = context.policy.policy_version
        is_changed = version > 0 or digest_of(last, policy_version=0) != digest_of(first, policy_version=0)
        after = await self._evaluate(context, last) if is_changed else before
        await report.evaluations(after)
        resources_id = await context.policy.publish(f"chosen-{digest_of(last, policy_version=version)}", last)
        notes.append(f"the chosen resources are {resources_id}")
        prompts = _prompts_in(last)
        archive = Archive(context.run_dir)
        if prompts:
            archive.save_best(Candidate(prompts=prompts), _scores_of(after), resources_id)
        policy_dir: Path | None = None
        if context.learner is not None and version > 0:
            policy_dir = context.run_dir / "policy"
            context.metrics.progress(Progress(phase="saving"))
            await context.learner.save_policy(policy_dir)
        context.metrics.progress(Progress(phase="done"))
        return RunResult(
            before=before,
            after=after,
            counts=counts,
            policy_dir=policy_dir,
            prompts=prompts,
            first_prompts=_prompts_in(first),
            prompts_dir=archive.folder if prompts else None,
            diagnosis=notes,
        )

    def _bound(self) -> BoundFunction:
        return BoundFunction(self.function, given=GIVEN, settings=self.settings)

    async def _chosen(self, store: LightningStore, answer: object) -> Mapping[str, Resource]:
        """What the function returned as resources by name."""
        if answer is None:
            return {}
        if isinstance(answer, str):
            answer = await store.get_resources_by_id(answer)
        if isinstance(answer, NamedResources):
            return answer.resources
        if isinstance(answer, Mapping):
            return cast("Mapping[str, Resource]", answer)
        raise ConfigError(
            f"algorithm {function_name(self.function)} returned a {type(answer).__name__}; it must return resources"
            " by name, NamedResources or their id, or None where nothing but weights has changed"
        )

    async def _evaluate(self, context: RunContext, resources: Mapping[str, Resource]) -> list[Evaluation]:
        if not context.val_tasks:
            return []
        digest = digest_of(resources, policy_version=context.policy.policy_version)
        evaluation = await evaluate(
            context.store,
            context.val_tasks,
            name="val/reward_greedy" if self.temperature == 0 else "val/reward",
            id_prefix=f"{context.prefix}-val-{digest}",
            resources_id=await context.policy.publish(f"val-{digest}", resources),
            seed=rollout_seed(context.seed, "val"),
            run_id=context.run_id,
            repeats=self.evaluate_repeats,
            config=self.rollout_config(),
            on_wait=lambda waited: context.metrics.progress(
                Progress(phase="evaluating", done=waited.done, total=waited.total, waiting_for=waited.words)
            ),
        )
        rollouts = [rollout for repeats in evaluation.rollouts for rollout in repeats]
        bad = [rollout for rollout in rollouts if is_bad(rollout)]
        if len(bad) > self.max_bad_fraction * len(rollouts):
            await set_aside(context.store, bad)
            raise RunStoppedError(
                f"{len(bad)} of {len(rollouts)} rollouts on the validation tasks gave no reward, more than"
                f" algorithm.max_bad_fraction={self.max_bad_fraction}; the first: {first_cause(bad)}"
            )
        return [evaluation]


class _Report:
    """Keeps numbers by step, in the run's metrics and in the store. Called as a function."""

    def __init__(self, context: RunContext) -> None:
        self._context, self._last = context, -1

    async def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step: 1, 2, ...; step 0 is the evaluation before."""
        self._last = max(self._last, step)
        plain = {name: float(value) for name, value in values.items()}
        await self._context.report(step, plain)

    async def evaluations(self, evaluations: list[Evaluation]) -> None:
        """Keep the means of evaluations behind all steps so far."""
        means = {one.name: one.reward.mean for one in evaluations}
        await self(self._last + 1, {name: mean for name, mean in means.items() if mean is not None})


def _prompts_in(resources: Mapping[str, Resource]) -> dict[str, PromptTemplate]:
    return {name: value for name, value in resources.items() if isinstance(value, PromptTemplate)}


def _scores_of(evaluations: list[Evaluation]) -> Scores:
    """The rewards on the validation tasks, in the shape in which prompts are written down with them."""
    groups = evaluations[0].rollouts if evaluations else []
    return Scores(
        rewards={index: evaluations[0].reward_of_task(index) for index in range(len(groups))},
        failed=Counter(cause_of(rollout) for group in groups for rollout in group if is_bad(rollout)),
    )


async def _counts_of(context: RunContext) -> RolloutCounts:
    """What became of all training rollouts, however they were asked for."""
    counts = RolloutCounts()
    query = RolloutQuery(run_id=context.run_id, mode="train")
    async for rollout in iter_rollouts(context.store, query):
        if ABANDONED not in rollout.metadata:
            counts += count_rollouts([rollout])
    return counts
