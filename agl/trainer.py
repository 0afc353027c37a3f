"""Trainer: composes store, runner, proxy, engine, adapter, algorithm and learner, and runs them. What ``agl
train`` builds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import chain, count
from pathlib import Path
from typing import Any

from agl.adapters.trace import TracerTraceToTriplet
from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.agents.lit_agent import LitAgent
from agl.algorithms.base import Algorithm, RunContext, RunResult
from agl.algorithms.baseline import Baseline
from agl.algorithms.function import as_algorithm
from agl.data import ChosenTasks, TaskData, chosen_tasks
from agl.errors import ConfigError
from agl.evaluation.rollouts import abandon_rollouts
from agl.inference.base import Engine
from agl.launch.joining import serve_run
from agl.launch.local import Parts, running
from agl.launch.orphans import set_aside_orphans, signs_of_life
from agl.launch.pairing import check_pair
from agl.launch.roles import ROLE, STORE_URL, Part, part_from
from agl.launch.run_record import git_commit, recorded_status
from agl.launch.stopping import run_interruptibly
from agl.launch.store_access import StoreAccess
from agl.learners.base import Learner
from agl.metrics.base import Progress
from agl.metrics.settings import MetricSettings
from agl.outcome import Outcome, outcome_of
from agl.proxy import LLMProxy
from agl.runners.base import Runners
from agl.runners.grading import Grader
from agl.runners.hooks import Hook, as_hook
from agl.runners.inline import InlineRunners
from agl.runners.remote import RemoteRunners
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.sqlite import SqliteLightningStore
from agl.types import Json, Policy, Resource, RolloutQuery

log = logging.getLogger(__name__)

TOKEN_FILE = "store.token"


class Trainer:
    """Improves an agent on tasks.

    A script that is started on several machines plays its part on each, as the environment says:
    ``AGL_CURRENT_ROLE=algorithm`` learns and waits for runners, ``runner`` runs agents for it, ``both`` (the default)
    does all; they meet at ``AGL_STORE_URL`` (with ``AGL_STORE_TOKEN``), in the run that ``run_dir`` names.

    Args:
        agent: a function decorated with ``@agl.rollout``, a ``LitAgent`` or any agent of ``agl.agents``; None is given
            to ``fit``.
        data: where training and validation tasks come from; None are given to ``fit``.
        algorithm: what to sample and how to learn from it: one of ``agl.algorithms``, or an async function of your own
            (``@agl.algo``).
        policy: the model that is trained and served where ``inference`` and ``learner`` are not given.
        inference: serves the policy; None is the in-process engine on ``policy``.
        learner: moves the weights; None is the torch learner on ``policy``. Left out where the algorithm moves none.
        store: queue and record; None is an SQLite file in ``run_dir``.
        store_server: how processes outside of this one reach the store, where one has to.
        runner: executes rollouts.
        grader: turns what the agent returned into the reward.
        hooks: called around rollouts: objects or classes of ``agl.Hook``, or ``file.py:name``.
        resources: what agents get beside the model, such as prompt templates.
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
        agent: Agent | LitAgent[Any] | Callable[..., Any] | None = None,
        data: TaskData | None = None,
        algorithm: Algorithm | Callable[..., Any],
        policy: Policy | None = None,
        inference: Engine | None = None,
        learner: Learner | None = None,
        store: LightningStore | None = None,
        store_server: StoreAccess | None = None,
        runner: Runners | None = None,
        grader: Grader | Callable[..., object] | None = None,
        hooks: Sequence[Hook | type[Hook]] | Sequence[str] = (),
        resources: Mapping[str, Resource] | None = None,
        proxy: LLMProxy | None = None,
        adapter: TracerTraceToTriplet | None = None,
        metrics: MetricSettings | None = None,
        run_dir: str = "runs/run",
        name: str = "train",
        seed: int = 0,
    ) -> None:
        part = part_from()
        self.role = part.role
        self.agent, self.data = None if agent is None else as_agent(agent), data
        self.algorithm = algorithm = as_algorithm(algorithm)
        self.grader = Grader(grader) if callable(grader) and not isinstance(grader, Grader) else grader
        self.hooks = [as_hook(hook) for hook in hooks]
        self.resources = dict(resources or {})
        self.inference: Engine | None = None
        self.learner: Learner | None = None
        if part.role != "runner":
            self.inference = inference or _engine_for(policy)
            self.learner = (learner or _learner_for(policy, algorithm)) if algorithm.needs_learner else None
            algorithm.check(self.learner, trainable=self.inference.trainable)
            if self.learner is not None:
                check_pair(self.learner, self.inference)
        self.run_dir, self.name, self.seed = Path(run_dir), name, seed
        self._given_store = _meeting_place(part, store)
        self.store = self._given_store or SqliteLightningStore(str(self.run_dir / "store.sqlite"))
        self.store_server = store_server or StoreAccess(token=part.store_token)
        self.runner = RemoteRunners() if part.role == "algorithm" else runner or InlineRunners()
        self.proxy = proxy or LLMProxy()
        self.adapter, self.metrics = adapter or TracerTraceToTriplet(), metrics or MetricSettings()

    def fit(
        self,
        agent: Agent | LitAgent[Any] | Callable[..., Any] | None = None,
        train: TaskData | Sequence[Json] | None = None,
        val: TaskData | Sequence[Json] | None = None,
        *,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> Outcome | None:
        """Run to the end in an event loop of its own and return what came out; None in the role of a runner.

        Args:
            agent: what is trained, in place of the constructor's.
            train: the training tasks, in place of those of ``data``.
            val: the tasks on which progress is measured, likewise; where ``train`` is data, its own by default.
            resume: go on where the run in ``run_dir`` stopped.
            settings: the resolved settings, secrets masked, for the run's record.

        Raises:
            ConfigError: the data is at fault, or there is a run in ``run_dir`` and ``resume`` is not set.
            RunStoppedError: going on makes no sense; the message names the first cause.
            KeyboardInterrupt: SIGINT or SIGTERM; everything started is stopped, and the run can be resumed.
        """
        return run_interruptibly(lambda: self.fit_async(agent, train, val, resume=resume, settings=settings))

    async def fit_async(
        self,
        agent: Agent | LitAgent[Any] | Callable[..., Any] | None = None,
        train: TaskData | Sequence[Json] | None = None,
        val: TaskData | Sequence[Json] | None = None,
        *,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> Outcome | None:
        """The same inside a running event loop."""
        chosen = self._agent(agent)
        if self.role == "runner":
            await self._serve(chosen, resumes=resume)
            return None
        tasks = chosen_tasks(self.data, train, val)
        return await self._fit(chosen, tasks, resume=resume, settings=settings)

    def dev(
        self,
        agent: Agent | LitAgent[Any] | Callable[..., Any] | None = None,
        tasks: TaskData | Sequence[Json] | None = None,
        *,
        num_tasks: int = 3,
    ) -> Outcome:
        """Try everything on a few tasks without learning anything, and return what came out: ``print(trainer.dev())``.

        The same engine, proxy, runner, grader and hooks as in ``fit`` run the agent once on each task, as the algorithm
        Baseline does. The dry run has a folder of its own beside ``run_dir``.

        Args:
            agent: what is tried, in place of the constructor's.
            tasks: to try it on, in place of the validation tasks of ``data``, or the training tasks where it has none.
            num_tasks: how many of them.
        """
        return run_interruptibly(lambda: self.dev_async(agent, tasks, num_tasks=num_tasks))

    async def dev_async(
        self,
        agent: Agent | LitAgent[Any] | Callable[..., Any] | None = None,
        tasks: TaskData | Sequence[Json] | None = None,
        *,
        num_tasks: int = 3,
    ) -> Outcome:
        """The same inside a running event loop."""
        if num_tasks < 1:
            raise ConfigError(f"num_tasks={num_tasks}: a dry run needs at least 1")
        if self.role != "both":
            raise ConfigError(f"a dry run is one process: start it without {ROLE}={self.role}")
        found = chosen_tasks(self.data if tasks is None else None, tasks)
        few = (found.val or found.train)[:num_tasks]
        rehearsal = Trainer(
            algorithm=Baseline(
                temperatures=[1.0],
                max_tokens=getattr(self.algorithm, "max_tokens", Baseline.max_tokens),
                rollout_timeout_seconds=getattr(
                    self.algorithm, "rollout_timeout_seconds", Baseline.rollout_timeout_seconds
                ),
            ),
            inference=self.inference,
            store=self._given_store,
            store_server=self.store_server,
            runner=self.runner,
            grader=self.grader,
            hooks=self.hooks,
            resources=self.resources,
            proxy=self.proxy,
            adapter=self.adapter,
            metrics=self.metrics,
            run_dir=str(_unused(self.run_dir.with_name(f"{self.run_dir.name}-dev"))),
            name=f"{self.name}-dev",
            seed=self.seed,
        )
        return await rehearsal._fit(self._agent(agent), ChosenTasks(train=[], val=few))

    def _agent(self, agent: Agent | LitAgent[Any] | Callable[..., Any] | None) -> Agent:
        if agent is not None:
            return as_agent(agent)
        if self.agent is None:
            raise ConfigError("there is no agent: give one to Trainer(agent=...) or to fit(agent)")
        return self.agent

    async def _fit(
        self,
        agent: Agent,
        tasks: ChosenTasks,
        *,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> Outcome:
        if self.algorithm.needs_learner and not tasks.train:
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
                git_commit=await asyncio.to_thread(git_commit),
            )
            outlives = not isinstance(
                self.store, SqliteLightningStore
            )  # this process, and so may its runners
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(recorded_status(self.store, run_id))
                if resume:
                    left = await abandon_rollouts(self.store, run_id=run_id)
                    if outlives:
                        left += await set_aside_orphans(self.store, run_id)
                    log.info("resuming %s; %d rollouts of the ended process are run again", run_id, left)
                if outlives:
                    await stack.enter_async_context(signs_of_life(self.store, run_id))
                result = await self._run(agent, tasks, run_id, resume=resume)
                return await outcome_of(result, store=self.store, run_dir=self.run_dir, name=self.name)

    async def _serve(self, agent: Agent, *, resumes: bool) -> None:
        """Be a runner of the run that another process learns in."""
        run_id = self.run_dir.resolve().name
        with self.metrics.open(None, title=run_id) as metrics:
            metrics.progress(Progress(phase="running agents"))
            async with self.store:
                status = await serve_run(
                    self._parts(agent), run_id=run_id, name=self.name, resumes=resumes, note=metrics.note
                )
            metrics.note(f"the run {run_id} has ended: {status}")

    async def _check_new(self, run_id: str) -> None:
        """Refuse a run whose rollout ids are taken: the store would answer with what was done before."""
        if (await self.store.query_rollouts(RolloutQuery(run_id=run_id, limit=1))).items:
            raise ConfigError(
                f"run_dir={self.run_dir}: the store holds a run {run_id} already; go on with it (resume=True) or"
                " choose another folder"
            )

    def _parts(self, agent: Agent) -> Parts:
        return Parts(
            store=self.store,
            engine=self.inference,
            learner=self.learner,
            proxy=self.proxy if self.role != "runner" else None,
            runner=self.runner,
            agent=agent,
            grader=self.grader,
            hooks=self.hooks,
            store_access=self.store_server,
            resources=self.resources,
        )

    async def _run(self, agent: Agent, tasks: ChosenTasks, run_id: str, *, resume: bool) -> RunResult:
        with self.metrics.open(self.run_dir) as metrics:
            token_file = self.run_dir / TOKEN_FILE
            async with running(
                self._parts(agent), run_id=run_id, token_file=token_file, note=metrics.note
            ) as policy:
                context = RunContext(
                    run_id=run_id,
                    run_dir=self.run_dir,
                    seed=self.seed,
                    resume=resume,
                    store=self.store,
                    train_tasks=tasks.train,
                    val_tasks=tasks.val,
                    adapter=self.adapter,
                    policy=policy,
                    learner=self.learner,
                    metrics=metrics,
                    resources=self.resources,
                )
                result = await self.algorithm.run(context)
            token_file.unlink(missing_ok=True)
            return result


def _meeting_place(part: Part, store: LightningStore | None) -> LightningStore | None:
    """The store that a role meets the others at; None for one of this run's own."""
    if part.store_url is not None:
        return LightningStoreClient(part.store_url, token=part.store_token)
    if part.role == "runner" and store is None:
        raise ConfigError(f"{ROLE}=runner: say where the run's store is: {STORE_URL}=http://HOST:PORT")
    return store


def _unused(folder: Path) -> Path:
    """The folder, or with ``-2``, ``-3``, ... behind its name where that is there already."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(one for one in chain([folder], numbered) if not one.exists())


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
