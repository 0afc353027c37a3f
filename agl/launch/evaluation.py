"""EvaluationRun: contestants on held-out tasks, some times each, through the store. What ``agl eval`` builds.

The ids of its rollouts are made of contestant, task and repeat. So a resumed run, or one with more repeats or tasks,
finds in the store what is done, and every contestant does a task with the same seeds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.algorithms.retries import RetrySettings
from agl.algorithms.sampling import READ_AT_ONCE, rollout_seed
from agl.data import TaskData
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import first_cause
from agl.evaluation.report import EvaluationReport, report_on
from agl.evaluation.rollouts import abandon_rollouts, run_rollouts, set_aside
from agl.evaluation.waiting import OnWait, no_words
from agl.inference.base import Engine
from agl.launch.local import Parts, started
from agl.launch.orphans import set_aside_orphans, signs_of_life
from agl.launch.run_record import git_commit, recorded_status
from agl.launch.store_access import StoreAccess
from agl.launch.tasks import publish_resources
from agl.proxy import LLMProxy
from agl.proxy.accounts import Account, call_from_span
from agl.runners.base import Runners
from agl.runners.grading import Grader
from agl.runners.hooks import Hook, as_hook
from agl.runners.inline import InlineRunners
from agl.runners.remote import RemoteRunners
from agl.store.base import LightningStore
from agl.store.paging import iter_spans
from agl.types import Json, Mode, Resource, Rollout, RolloutRequest, SpanQuery, Weights

log = logging.getLogger(__name__)

TOKEN_FILE = "store.token"
WEIGHTS = "policy_weights"
"""Under this name the resources of a contestant with weights of its own say which."""
ID_DIGITS = 12
_OWN_SETTINGS = {"temperature": "temperature", "max_tokens": "max_tokens", "seed": "seed of the run"}


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(RetrySettings):
    """How an evaluation measures; limits of a rollout are in ``RetrySettings``.

    Args:
        mode: which tasks: test, val or train; None is test where the data has such, else val.
        limit: the first so many tasks; None is all.
        repeats: rollouts of each task.
        threshold: a reward of at least this passes.
        pass_at: numbers of rollouts for pass@k; empty is 1 and ``repeats``.
        temperature: of every call; None leaves it and ``top_p`` to the agent.
        max_tokens: longest answer of one call; None leaves it to the agent.
        sampling: further request parameters of every call.
        max_bad_fraction: the evaluation stops where more of the rollouts gave no reward.
        resources: who is evaluated: ``latest``, ``base``, a run or the id of resources.
        against: whom it is compared with, likewise; None is nobody.
    """

    mode: str | None = None
    limit: int | None = None
    repeats: int = 1
    threshold: float = 1.0
    pass_at: list[int] = field(default_factory=list[int])
    temperature: float | None = None
    max_tokens: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    max_bad_fraction: float = 0.5
    resources: str | None = None
    against: str | None = None

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        if self.mode is not None and self.mode not in get_args(Mode):
            raise ConfigError(f"mode={self.mode}: one of {', '.join(get_args(Mode))}, or null")
        for name in ("limit", "repeats", "max_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        for k in self.pass_at:
            if not 1 <= k <= self.repeats:
                raise ConfigError(f"pass_at={self.pass_at}: pass@{k} needs repeats={max(k, 1)} or more")
        for name, setting in _OWN_SETTINGS.items():
            if name in self.sampling:
                raise ConfigError(f"sampling.{name} has a setting of its own: {setting}")
        self._check_ranges()

    def _check_ranges(self) -> None:
        if math.isnan(self.threshold):
            raise ConfigError(f"threshold={self.threshold} must be a number")
        if self.temperature is not None and not self.temperature >= 0:
            raise ConfigError(f"temperature={self.temperature} must not be negative")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be between 0 and 1")

    def call_parameters(self) -> dict[str, Any]:
        """Return the request parameters that are forced on every call."""
        given = {
            "top_p": None if self.temperature is None else 1.0,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        return {name: value for name, value in given.items() if value is not None} | self.sampling

    def numbers_to_pass_at(self) -> list[int]:
        """Return the k of pass@k."""
        return sorted({*self.pass_at} or {1, self.repeats})


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Who is evaluated.

    Args:
        name: for people.
        fingerprint: of all that makes it what it is; in ids.
        inference: answers as the model; None leaves the proxy with its endpoints.
        resources: what agents get beside the model.
        weights: those that ``inference`` serves, where they are not the settings' own.
    """

    name: str
    fingerprint: str
    inference: Engine | None
    resources: Mapping[str, Resource]
    weights: Weights | None = None


class EvaluationRun:
    """Measures contestants and changes nothing.

    Args:
        agent: what is run.
        data: where tasks come from.
        store: queue and record.
        runner: executes rollouts.
        proxy: the recorded door to the model.
        inference: answers as the model; None leaves the proxy with its endpoints, of which the first is it.
        grader: turns what the agent returned into the reward.
        hooks: called around rollouts.
        resources: what agents get beside the model.
        store_server: how processes outside of this one reach the store, where one has to.
        evaluation: how it measures.
        run_dir: folder of this run.
        name: of the run.
        seed: of the rollouts' sampling.
    """

    def __init__(
        self,
        *,
        agent: Agent | Callable[..., Any],
        data: TaskData,
        store: LightningStore,
        runner: Runners | None = None,
        proxy: LLMProxy | None = None,
        inference: Engine | None = None,
        grader: Grader | Callable[..., object] | None = None,
        hooks: Sequence[Hook | type[Hook]] | Sequence[str] = (),
        resources: Mapping[str, Resource] | None = None,
        store_server: StoreAccess | None = None,
        evaluation: EvaluationSettings | None = None,
        run_dir: str = "runs/eval",
        name: str = "eval",
        seed: int = 0,
    ) -> None:
        self.agent, self.data, self.store = as_agent(agent), data, store
        self.runner, self.proxy, self.inference = runner or InlineRunners(), proxy or LLMProxy(), inference
        self.grader = Grader(grader) if callable(grader) and not isinstance(grader, Grader) else grader
        self.hooks = [as_hook(hook) for hook in hooks]
        self.resources, self.store_server = dict(resources or {}), store_server or StoreAccess()
        self.evaluation = evaluation or EvaluationSettings()
        self.run_dir, self.name, self.seed = Path(run_dir), name, seed

    @property
    def run_id(self) -> str:
        """The name of the run's folder."""
        return self.run_dir.resolve().name

    def tasks(self) -> tuple[Mode, list[Json]]:
        """Return which part of the data is measured on, and its tasks.

        Raises:
            ConfigError: the data has none, or loading fails.
        """
        wanted = self.evaluation.mode
        modes: list[Mode] = [mode for mode in get_args(Mode) if mode == wanted] or ["test", "val"]
        for mode in modes:
            if found := self.data.load(mode):
                return mode, found[: self.evaluation.limit]
        kinds = " and no ".join(modes)
        raise ConfigError(f"data: there are no {kinds} tasks; evaluation.mode=train takes the training tasks")

    async def run(
        self,
        contestants: Sequence[Contestant],
        tasks: Sequence[Json],
        *,
        mode: Mode,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
        on_wait: OnWait = no_words,
        note: Callable[[str], None] = log.info,
    ) -> list[EvaluationReport]:
        """Run every contestant on every task, one contestant after the other; return a report on each.

        Args:
            contestants: at least one.
            tasks: inputs.
            mode: what the rollouts count as.
            resume: go on where the run in ``run_dir`` stopped.
            settings: resolved, secrets masked, for the run's record.
            on_wait: hears how many rollouts have ended, and who keeps the others waiting.
            note: takes a line that a person should read while it happens.

        Raises:
            RunStoppedError: too many of a contestant's rollouts gave no reward.
        """
        async with self.store as store, AsyncExitStack() as stack:
            commit = await asyncio.to_thread(git_commit)
            await store.add_run(
                name=self.name, run_id=self.run_id, command="eval", settings=settings, git_commit=commit
            )
            await stack.enter_async_context(recorded_status(store, self.run_id))
            outlives = isinstance(self.runner, RemoteRunners)
            if resume:
                left = await abandon_rollouts(store, run_id=self.run_id)
                if outlives:
                    left += await set_aside_orphans(store, self.run_id)
                log.info("resuming %s; %d rollouts of the ended process are run again", self.run_id, left)
            if outlives:
                await stack.enter_async_context(signs_of_life(store, self.run_id))
            return [
                await self._measured(store, contestant, mode, tasks, on_wait=on_wait, note=note)
                for contestant in contestants
            ]

    async def _measured(
        self,
        store: LightningStore,
        contestant: Contestant,
        mode: Mode,
        tasks: Sequence[Json],
        *,
        on_wait: OnWait,
        note: Callable[[str], None],
    ) -> EvaluationReport:
        sampling = self.evaluation.call_parameters()
        resources = dict(contestant.resources)
        if contestant.weights is not None:
            resources[WEIGHTS] = contestant.weights
        token_file = self.run_dir / TOKEN_FILE
        async with started(
            self._parts(store, contestant), run_id=self.run_id, token_file=token_file, note=note
        ) as served:
            assert served.proxy is not None
            resources_id = await publish_resources(
                store,
                resources,
                engine=contestant.inference,
                proxy=self.proxy,
                served=served.proxy,
                run_id=self.run_id,
                purpose=f"eval-{contestant.fingerprint}",
                sampling=sampling,
            )
            named = list(zip(task_ids(tasks), tasks, strict=True))
            requests = [
                self._request(contestant, task_id, task, repeat=repeat, mode=mode, resources_id=resources_id)
                for task_id, task in named
                for repeat in range(self.evaluation.repeats)
            ]
            rollouts = await run_rollouts(store, requests, on_wait=on_wait)
        token_file.unlink(missing_ok=True)
        await self._check(store, rollouts, contestant)
        size = self.evaluation.repeats
        groups = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
        return report_on(
            contestant.name,
            [(task_id, group) for (task_id, _), group in zip(named, groups, strict=True)],
            threshold=self.evaluation.threshold,
            pass_at=self.evaluation.numbers_to_pass_at(),
            usage=await usage_of(store, rollouts),
            resources_id=resources_id,
        )

    def _request(
        self,
        contestant: Contestant,
        task_id: str,
        task: Json,
        *,
        repeat: int,
        mode: Mode,
        resources_id: str | None,
    ) -> RolloutRequest:
        group_id = f"{self.run_id}-{contestant.fingerprint}-{task_id}"
        return RolloutRequest(
            task=task,
            rollout_id=f"{group_id}-{repeat}",
            run_id=self.run_id,
            mode=mode,
            group_id=group_id,
            resources_id=resources_id,
            config=self.evaluation.rollout_config(),
            metadata={
                "seed": rollout_seed(self.seed, f"{task_id}-{repeat}"),
                "sampling": self.evaluation.call_parameters(),
                "task_id": task_id,
            },
        )

    def _parts(self, store: LightningStore, contestant: Contestant) -> Parts:
        return Parts(
            store=store,
            engine=contestant.inference,
            learner=None,
            proxy=self.proxy,
            runner=self.runner,
            agent=self.agent,
            grader=self.grader,
            hooks=self.hooks,
            store_access=self.store_server,
            resources=contestant.resources,
        )

    async def _check(
        self, store: LightningStore, rollouts: Sequence[Rollout], contestant: Contestant
    ) -> None:
        """Stop where this says more about a broken service than about the contestant; resumed, it tries again."""
        bad = [one for one in rollouts if one.status != "succeeded" or one.reward is None]
        if len(bad) > self.evaluation.max_bad_fraction * len(rollouts):
            await set_aside(store, bad)
            raise RunStoppedError(
                f"{len(bad)} of {len(rollouts)} rollouts of {contestant.name} gave no reward, more than"
                f" evaluation.max_bad_fraction={self.evaluation.max_bad_fraction}; the first: {first_cause(bad)}"
            )


def task_ids(tasks: Sequence[Json]) -> list[str]:
    """Return an id for each task, made of the task itself; equal tasks are told apart by ``-2``, ``-3``, ..."""
    seen: Counter[str] = Counter()
    ids: list[str] = []
    for task in tasks:
        digest = digest_of(task)
        seen[digest] += 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


def digest_of(value: Json) -> str:
    """Return twelve hex digits of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]


async def usage_of(store: LightningStore, rollouts: Sequence[Rollout]) -> Account:
    """Return what the calls of these rollouts took, attempts that were tried again included."""
    account, reading = Account(), asyncio.Semaphore(READ_AT_ONCE)

    async def count(rollout: Rollout) -> None:
        async with reading:
            async for span in iter_spans(store, SpanQuery(rollout_id=rollout.rollout_id)):
                if (call := call_from_span(span)) is not None:
                    account.add(call)

    await asyncio.gather(*map(count, rollouts))
    return account
