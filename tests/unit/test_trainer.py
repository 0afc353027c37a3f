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
from agl.errors import ConfigError
from agl.evaluation.counts import count_rollouts
from agl.evaluation.rollouts import run_rollouts
from agl.learners.base import Learner
from agl.metrics.settings import MetricSettings
from agl.proxy.server import ProxyServer
from agl.store.base import LightningStore
from agl.store.sqlite import SqliteLightningStore
from agl.trainer import Trainer
from agl.types import Json, Mode, RolloutRequest


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
