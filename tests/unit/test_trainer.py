"""The Trainer is whole when built, or says what is missing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_engine import CountingEngine
from sampled_batches import ConstantCritic

from agl.algorithms.base import Algorithm, RunContext, RunResult
from agl.algorithms.baseline import Baseline
from agl.algorithms.grpo import GRPO
from agl.algorithms.ppo import PPO
from agl.data import TaskData
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import count_rollouts
from agl.evaluation.rollouts import run_rollouts
from agl.learners.base import Learner
from agl.metrics.settings import MetricSettings
from agl.proxy.server import ProxyServer
from agl.runners.hooks import Hook
from agl.runners.inline import InlineRunners
from agl.runners.remote import RemoteRunners
from agl.store.address import StoreAddress
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.sqlite import SqliteLightningStore
from agl.trainer import Trainer
from agl.types import Json, Mode, Rollout, RolloutRequest


class Tasks:
    def load(self, mode: Mode) -> list[Json]:
        return [1, 2]


async def agent(task: int) -> float:
    return float(task)


def test_a_policy_or_an_engine_is_needed() -> None:
    with pytest.raises(ConfigError, match="set policy"):
        Trainer(agent=agent, data=Tasks(), algorithm=Baseline())


def test_an_algorithm_that_moves_weights_needs_a_policy_for_its_learner() -> None:
    class Elsewhere:
        pass

    with pytest.raises(ConfigError, match="PPO moves weights: set policy"):
        Trainer(agent=agent, data=Tasks(), algorithm=PPO(), inference=Elsewhere())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "learner", "trainable", "message"),
    [
        (PPO(), ConstantCritic(lacks="critic"), True, "critic"),
        (GRPO(kl_coef=0.1), ConstantCritic(lacks="reference"), True, "reference"),
        (GRPO(), ConstantCritic(), False, "inference=transformers"),
    ],
)
def test_parts_that_do_not_fit_the_algorithm_are_refused_before_anything_starts(
    algorithm: Algorithm, learner: ConstantCritic, message: str, *, trainable: bool
) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(
            agent=agent,
            data=Tasks(),
            algorithm=algorithm,
            inference=CountingEngine(trainable=trainable),
            learner=learner,
        )


def test_the_baseline_runs_on_any_engine() -> None:
    Trainer(agent=agent, data=Tasks(), algorithm=Baseline(), inference=CountingEngine(trainable=False))


def test_a_learner_that_the_algorithm_does_not_need_is_not_loaded() -> None:
    trainer = Trainer(
        agent=agent, data=Tasks(), algorithm=Baseline(), inference=CountingEngine(), learner=ConstantCritic()
    )
    assert trainer.learner is None


class Counting:
    """Asks for one rollout of each training task, as an algorithm without weights would."""

    needs_learner = False

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        return None

    async def run(self, context: RunContext) -> RunResult:
        requests = [
            RolloutRequest(task=task, rollout_id=f"{context.run_id}-{task}", run_id=context.run_id)
            for task in context.train_tasks
        ]
        rollouts = await run_rollouts(context.store, requests)
        return RunResult(before=[], after=[], counts=count_rollouts(rollouts))


class NoProxy:
    """Stands where the proxy does; agents of these tests make no calls."""

    @asynccontextmanager
    async def serving(self, store: LightningStore, upstream: object) -> AsyncGenerator[ProxyServer]:
        yield ProxyServer(url="http://127.0.0.1:9")


def trainer_in(folder: Path, tasks: TaskData | None = None, **parts: Any) -> Trainer:
    settings = MetricSettings(console="off")
    return Trainer(
        agent=agent,
        data=tasks or Tasks(),
        inference=CountingEngine(),
        proxy=NoProxy(),  # type: ignore[arg-type]
        run_dir=str(folder),
        metrics=settings,
        **{"algorithm": Counting(), **parts},
    )


async def test_a_folder_with_a_run_in_it_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """Its rollouts have the ids of the new run's, so the store would answer with what another agent did."""
    first = await trainer_in(tmp_path).fit_async()
    assert first.result.counts.succeeded == 2
    with pytest.raises(ConfigError, match="resume=True"):
        await trainer_in(tmp_path).fit_async()
    resumed = await trainer_in(tmp_path).fit_async(resume=True)
    assert resumed.result.counts.succeeded == 2
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store:
        assert [run.status for run in (await store.query_runs()).items] == ["succeeded"]


async def test_training_on_no_tasks_is_refused_before_anything_starts(tmp_path: Path) -> None:
    class Empty:
        def load(self, mode: Mode) -> list[Json]:
            return []

    trainer = trainer_in(tmp_path / "run", Empty(), algorithm=GRPO(), learner=ConstantCritic())
    with pytest.raises(ConfigError, match="no training tasks"):
        await trainer.fit_async()
    assert not (tmp_path / "run").exists()


async def test_fit_takes_agent_and_tasks_in_place_of_the_constructors(tmp_path: Path) -> None:
    seen: list[int] = []

    async def other(task: int) -> float:
        seen.append(task)
        return 1.0

    trainer = Trainer(
        algorithm=Counting(),
        inference=CountingEngine(),
        proxy=NoProxy(),  # type: ignore[arg-type]
        run_dir=str(tmp_path),
        metrics=MetricSettings(console="off"),
    )
    outcome = await trainer.fit_async(other, [5, 6, 7])
    assert outcome is not None
    assert outcome.result.counts.succeeded == 3
    assert sorted(seen) == [5, 6, 7]


@pytest.mark.parametrize(
    ("given", "message"),
    [((None, [1]), "there is no agent: give one to Trainer"), ((agent,), "there are no tasks: give Trainer")],
)
async def test_a_fit_without_an_agent_or_tasks_is_refused_before_anything_starts(
    tmp_path: Path, given: tuple[Any, ...], message: str
) -> None:
    trainer = Trainer(algorithm=Counting(), inference=CountingEngine(), run_dir=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match=message):
        await trainer.fit_async(*given)
    assert not (tmp_path / "run").exists()


async def test_grader_and_hooks_are_those_of_every_rollout(tmp_path: Path) -> None:
    ended: list[str] = []

    class Watching(Hook):
        def on_rollout_end(self, rollout: Rollout) -> None:
            ended.append(rollout.rollout_id)

    async def silent(task: int) -> dict[str, int]:
        return {"answer": task}

    trainer = trainer_in(tmp_path, grader=lambda result: result["answer"] * 2.0, hooks=[Watching])
    outcome = await trainer.fit_async(silent)
    assert outcome is not None
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store:
        rewards = {one.task: one.reward for one in (await store.query_rollouts()).items}
    assert rewards == {1: 2.0, 2: 4.0}
    assert sorted(ended) == [f"{tmp_path.name}-1", f"{tmp_path.name}-2"]


async def test_a_dry_run_tries_a_few_tasks_once_and_leaves_the_runs_folder_alone(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path / "run", algorithm=GRPO(max_tokens=7), learner=ConstantCritic())
    outcome = await trainer.dev_async(tasks=[1, 2, 3, 4], num_tasks=2)
    assert outcome.result.counts.enqueued == outcome.result.counts.succeeded == 2
    assert outcome.result.after[0].reward.mean == 1.5
    assert "Held-out reward" in str(outcome)
    assert outcome.run_dir == tmp_path / "run-dev"
    assert not (tmp_path / "run").exists()
    again = await trainer.dev_async(num_tasks=1)  # the data's validation tasks
    assert again.run_dir == tmp_path / "run-dev-2"
    with pytest.raises(ConfigError, match="at least 1"):
        await trainer.dev_async(num_tasks=0)


# Roles.


def test_a_runner_by_role_needs_no_policy_and_no_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "runner")
    monkeypatch.setenv("AGL_STORE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AGL_STORE_TOKEN", "s3cret")
    trainer = Trainer(agent=agent, data=Tasks(), algorithm=PPO())
    assert (trainer.inference, trainer.learner) == (None, None)
    assert isinstance(trainer.store, LightningStoreClient)
    assert trainer.store.address == StoreAddress(url="http://127.0.0.1:1", token="s3cret")
    with pytest.raises(ConfigError, match="a dry run is one process"):
        trainer.dev()


def test_an_algorithm_by_role_waits_for_runners_whatever_the_script_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "algorithm")
    trainer = Trainer(
        agent=agent,
        data=Tasks(),
        algorithm=Baseline(),
        inference=CountingEngine(),
        runner=InlineRunners(),
    )
    assert isinstance(trainer.runner, RemoteRunners)


def test_a_runner_without_a_store_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "runner")
    with pytest.raises(ConfigError, match="AGL_STORE_URL=http://HOST:PORT"):
        Trainer(agent=agent, data=Tasks(), algorithm=Baseline())


async def test_a_run_that_fails_says_so_in_the_store_or_ends_alike_where_the_store_is_closed(
    tmp_path: Path,
) -> None:
    class Failing(Counting):
        async def run(self, context: RunContext) -> RunResult:
            raise RunStoppedError("it makes no sense")

    with pytest.raises(RunStoppedError, match="no sense"):
        await trainer_in(tmp_path, algorithm=Failing()).fit_async()
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store:
        assert [run.status for run in (await store.query_runs()).items] == ["failed"]

    class Closing(Counting):
        async def run(self, context: RunContext) -> RunResult:
            await context.store.close()
            raise RunStoppedError("it makes no sense")

    with pytest.raises(RunStoppedError, match="no sense"):
        await trainer_in(tmp_path / "other", algorithm=Closing()).fit_async()
