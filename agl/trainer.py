"""Trainer: composes store, runner, proxy, engine, adapter, algorithm and learner, and runs them. What ``agl
train`` builds.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agl.adapters.trace import TracerTraceToTriplet
from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.algorithms.base import Algorithm, RunContext, RunResult
from agl.data import TaskData
from agl.errors import ConfigError
from agl.evaluation.rollouts import abandon_rollouts
from agl.inference.base import Engine
from agl.launch.event_loop import loop_factory
from agl.launch.local import Parts, running
from agl.learners.base import Learner
from agl.metrics.settings import MetricSettings
from agl.outcome import Outcome, outcome_of
from agl.proxy import LLMProxy
from agl.runners.inline import InlineRunners
from agl.store.base import LightningStore
from agl.store.sqlite import SqliteLightningStore
from agl.types import Json, Mode, Policy, RolloutQuery, RunStatus

log = logging.getLogger(__name__)


class Trainer:
    """Improves an agent on tasks.

    Args:
        agent: a function decorated with ``@agl.rollout``, or any agent of ``agl.agents``.
        data: where training and validation tasks come from.
        algorithm: what to sample and how to learn from it.
        policy: the model that is trained and served where ``inference`` and ``learner`` are not given.
        inference: serves the policy; None is the in-process engine on ``policy``.
        learner: moves the weights; None is the torch learner on ``policy``. Left out where the algorithm moves none.
        store: queue and record; None is an SQLite file in ``run_dir``.
        runner: executes rollouts.
        proxy: the recorded door to the model.
        adapter: spans to training data.
        metrics: where numbers go.
        run_dir: folder of this run: settings, store, metrics, checkpoints, log.
        name: of the run.
        seed: of task order and sampling.
    """

    def __init__(
        self,
        *,
        agent: Agent | Callable[..., Any],
        data: TaskData,
        algorithm: Algorithm,
        policy: Policy | None = None,
        inference: Engine | None = None,
        learner: Learner | None = None,
        store: LightningStore | None = None,
        runner: InlineRunners | None = None,
        proxy: LLMProxy | None = None,
        adapter: TracerTraceToTriplet | None = None,
        metrics: MetricSettings | None = None,
        run_dir: str = "runs/run",
        name: str = "train",
        seed: int = 0,
    ) -> None:
        self.agent, self.data, self.algorithm = as_agent(agent), data, algorithm
        self.inference = inference or _engine_for(policy)
        self.learner = (learner or _learner_for(policy, algorithm)) if algorithm.needs_learner else None
        algorithm.check(self.learner, trainable=self.inference.trainable)
        self.run_dir, self.name, self.seed = Path(run_dir), name, seed
        self.store = store or SqliteLightningStore(str(self.run_dir / "store.sqlite"))
        self.runner, self.proxy = runner or InlineRunners(), proxy or LLMProxy()
        self.adapter, self.metrics = adapter or TracerTraceToTriplet(), metrics or MetricSettings()

    def fit(self, *, resume: bool = False, settings: Mapping[str, Any] | None = None) -> Outcome:
        """Run to the end in an event loop of its own and return what came out.

        Args:
            resume: go on where the run in ``run_dir`` stopped.
            settings: the resolved settings, secrets masked, for the run's record.

        Raises:
            ConfigError: the data is at fault, or there is a run in ``run_dir`` and ``resume`` is not set.
            RunStoppedError: going on makes no sense; the message names the first cause.
        """
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self.fit_async(resume=resume, settings=settings))

    async def fit_async(self, *, resume: bool = False, settings: Mapping[str, Any] | None = None) -> Outcome:
        """The same inside a running event loop."""
        train_tasks, val_tasks = _tasks(self.data, "train"), _tasks(self.data, "val")
        if self.algorithm.needs_learner and not train_tasks:
            raise ConfigError("data: there are no training tasks")
        self.run_dir.mkdir(parents=True, exist_ok=True)
        run_id = self.run_dir.resolve().name
        async with self.store:
            if not resume:
                await self._check_new(run_id)
            await self.store.add_run(
                name=self.name,
                run_id=run_id,
                command="train",
                settings=settings,
                git_commit=await asyncio.to_thread(_git_commit),
            )
            status: RunStatus = "failed"
            try:
                await self.store.update_run(run_id, status="running")
                if resume:
                    left = await abandon_rollouts(self.store, run_id=run_id)
                    log.info("resuming %s; %d rollouts of the ended process are run again", run_id, left)
                result = await self._run(run_id, train_tasks, val_tasks, resume=resume)
                outcome = await outcome_of(result, store=self.store, run_dir=self.run_dir, name=self.name)
            except asyncio.CancelledError:
                status = "interrupted"
                raise
            else:
                status = "succeeded"
                return outcome
            finally:
                await asyncio.shield(self.store.update_run(run_id, status=status))

    async def _check_new(self, run_id: str) -> None:
        """Refuse a run whose rollout ids are taken: the store would answer with what was done before."""
        if (await self.store.query_rollouts(RolloutQuery(run_id=run_id, limit=1))).items:
            raise ConfigError(
                f"run_dir={self.run_dir}: the store holds a run {run_id} already; go on with it (resume=True) or"
                " choose another folder"
            )

    async def _run(
        self, run_id: str, train_tasks: list[Any], val_tasks: list[Any], *, resume: bool
    ) -> RunResult:
        parts = Parts(
            store=self.store,
            engine=self.inference,
            learner=self.learner,
            proxy=self.proxy,
            runner=self.runner,
            agent=self.agent,
        )
        with self.metrics.open(self.run_dir) as metrics:
            async with running(parts, run_id=run_id) as policy:
                context = RunContext(
                    run_id=run_id,
                    run_dir=self.run_dir,
                    seed=self.seed,
                    resume=resume,
                    store=self.store,
                    train_tasks=train_tasks,
                    val_tasks=val_tasks,
                    adapter=self.adapter,
                    policy=policy,
                    learner=self.learner,
                    metrics=metrics,
                )
                return await self.algorithm.run(context)


def _tasks(data: TaskData, mode: Mode) -> list[Json]:
    try:
        return data.load(mode)
    except (ValueError, OSError) as error:
        raise ConfigError(f"data: {error}") from error


def _engine_for(policy: Policy | None) -> Engine:
    if policy is None:
        raise ConfigError("set policy (a model to train) or inference (a server that answers)")
    from agl.inference.transformers import TransformersEngine

    return TransformersEngine(policy=policy)


def _learner_for(policy: Policy | None, algorithm: Algorithm) -> Learner:
    if policy is None:
        raise ConfigError(
            f"algorithm {type(algorithm).__name__} moves weights: set policy (a model to train)"
        )
    from agl.learners.torch.learner import TorchLearner

    return TorchLearner(policy=policy, critic="head")


def _git_commit() -> str | None:
    """The commit of the folder the command was started in, None outside a repository."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return None
