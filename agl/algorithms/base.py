"""Algorithm: decides what to sample, how to give credit, when to update and publish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from agl.adapters.trace import TracerTraceToTriplet
from agl.algorithms.serving import ServedPolicy
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.evaluate import Evaluation
from agl.learners.base import Learner
from agl.metrics.logger import MetricLogger
from agl.store.base import LightningStore
from agl.types import Json, PromptTemplate, Resource


async def _never() -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Everything an algorithm works with; all parts are open and running.

    Args:
        run_id: of this run, in ids of rollouts and resources.
        run_dir: where files of the run go.
        seed: of task order and of every sampled token.
        resume: go on from the newest checkpoint in ``run_dir``.
        learner: None when the policy is not trained.
        policy: the policy as agents reach it.
        resources: what agents get beside the model at the start, such as prompt templates.
        stage: of several in a run, empty where it is the only one; in ids of rollouts and resources.
        first_step: of its metrics within the run.
        ends_now: says why the algorithm should end with what it has, None where it need not. Asked between steps.
    """

    run_id: str
    run_dir: Path
    seed: int
    resume: bool
    store: LightningStore
    train_tasks: Sequence[Json]
    val_tasks: Sequence[Json]
    adapter: TracerTraceToTriplet
    policy: ServedPolicy
    learner: Learner | None
    metrics: MetricLogger
    resources: Mapping[str, Resource] = field(default_factory=dict[str, Resource])
    stage: str = ""
    first_step: int = 0
    ends_now: Callable[[], Awaitable[str | None]] = _never

    @property
    def prefix(self) -> str:
        """How ids of this algorithm's rollouts begin."""
        return f"{self.run_id}-{self.stage}" if self.stage else self.run_id

    async def report(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step, where people look and in the store."""
        self.metrics.metrics(step, values)
        await self.keep(step, values)

    async def keep(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step in the store only."""
        await self.store.add_metrics(self.run_id, self.first_step + step, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a finished run leaves.

    Args:
        before: evaluations of the policy that the run began with.
        after: the same evaluations of the policy that it ended with, in the same order.
        counts: of all training rollouts; of the evaluations' where nothing is trained.
        iterations: behind which the policy stands, those of earlier processes of the run included.
        policy_dir: the trained policy as an ordinary Hugging Face folder, or None.
        checkpoint_dir: the newest checkpoint, or None.
        prompts: the chosen prompts by resource name, where prompts were improved.
        first_prompts: those of the same names that the run began with.
        prompts_dir: where they, and all that were tried, are written down.
        further: the setting with which a resumed run goes on, as ``beam_rounds=6``; empty is ``iterations`` where
            weights are trained, and none where they are not.
        diagnosis: lines on what looked wrong, with what to do.
        table: lines that stand as they are below the held-out reward.
    """

    before: list[Evaluation]
    after: list[Evaluation]
    counts: RolloutCounts
    iterations: int = 0
    policy_dir: Path | None = None
    checkpoint_dir: Path | None = None
    prompts: Mapping[str, PromptTemplate] = field(default_factory=dict[str, PromptTemplate])
    first_prompts: Mapping[str, PromptTemplate] = field(default_factory=dict[str, PromptTemplate])
    prompts_dir: Path | None = None
    further: str = ""
    diagnosis: list[str] = field(default_factory=list[str])
    table: list[str] = field(default_factory=list[str])


@runtime_checkable
class Algorithm(Protocol):
    """One way to improve an agent."""

    @property
    def needs_learner(self) -> bool:
        """Whether it moves weights."""
        ...

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Refuse, before anything starts, parts that it cannot work with; ``trainable`` is the engine's word.

        Raises:
            ConfigError: the message names the setting.
        """
        ...

    async def run(self, context: RunContext) -> RunResult:
        """Improve the agent; cancelling the task stops the run where it is, resumable.

        Raises:
            RunStoppedError: going on makes no sense; the message names the first cause.
        """
        ...
