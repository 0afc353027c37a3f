"""Contestants on tasks through a real store: the ids, seeds and settings that make an evaluation resumable and fair."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.report import EvaluationReport
from agl.launch.evaluation import Contestant, EvaluationRun, EvaluationSettings, digest_of, task_ids
from agl.proxy import ProxyServer
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import Json, Mode, ModelEndpoint, PromptTemplate, Rollout, RolloutQuery, Weights


class FakeProxy:
    """Serves without a socket."""

    def __init__(self, **endpoints: ModelEndpoint) -> None:
        self.endpoints = endpoints

    @asynccontextmanager
    async def serving(self, store: Any, upstream: Any) -> AsyncGenerator[ProxyServer]:
        yield ProxyServer(url="http://proxy:1", api_key="none")


class Parts:
    """Tasks by mode."""

    def __init__(self, **tasks: list[Json]) -> None:
        self.tasks = tasks

    def load(self, mode: Mode) -> list[Json]:
        return self.tasks.get(mode, [])


def contestant(name: str, **resources: Any) -> Contestant:
    return Contestant(name=name, fingerprint=digest_of(name), inference=None, resources=resources)


class Bench:
    """An agent that writes down what it is asked, and evaluations of it on one store's file."""

    def __init__(self, folder: Any) -> None:
        self.folder, self.seen = folder, list[tuple[Any, str, int]]()
        self.fails = False

    async def agent(self, task: Any, rollout: Rollout, prompt_template: PromptTemplate) -> float:
        self.seen.append((task, prompt_template.template, rollout.metadata["seed"]))
        if self.fails:
            raise ValueError("down")
        return float(task == prompt_template.template)

    async def evaluate(
        self, names: Sequence[str], tasks: Sequence[Json], *, resume: bool = False, **settings: Any
    ) -> list[EvaluationReport]:
        run = EvaluationRun(
            agent=self.agent,
            data=Parts(),
            store=SqliteLightningStore(str(self.folder / "store.sqlite")),
            proxy=FakeProxy(),  # type: ignore[arg-type]
            evaluation=EvaluationSettings(**settings),
            run_dir=str(self.folder),
        )
        contestants = [contestant(name, prompt=PromptTemplate(template=name)) for name in names]
        return await run.run(contestants, tasks, mode="test", resume=resume)

    async def rollouts(self) -> Sequence[Rollout]:
        async with SqliteLightningStore(str(self.folder / "store.sqlite")) as store:
            return (await store.query_rollouts(RolloutQuery())).items


@pytest.fixture
def bench(tmp_path: Any) -> Bench:
    return Bench(tmp_path)


async def test_contestants_do_the_same_tasks_with_the_same_seeds(bench: Bench) -> None:
    first, second = await bench.evaluate(["a", "b"], ["a", "b", "x"], repeats=2)
    assert (first.contestant, first.reward.mean, second.reward.mean) == ("a", 1 / 3, 1 / 3)
    assert [task.rewards for task in first.tasks] == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    seeds = {
        name: sorted((task, seed) for task, prompt, seed in bench.seen if prompt == name)
        for name in ("a", "b")
    }
    assert seeds["a"] == seeds["b"]
    assert len({seed for _, seed in seeds["a"]}) == 6
    assert [task.task_id for task in first.tasks] == [task.task_id for task in second.tasks]


async def test_the_store_tells_run_contestant_and_task_of_each_rollout(bench: Bench) -> None:
    await bench.evaluate(["a"], ["a"])
    (rollout,) = await bench.rollouts()
    run_id, fingerprint, task = bench.folder.name, digest_of("a"), digest_of("a")
    assert rollout.rollout_id == f"{run_id}-{fingerprint}-{task}-0"
    assert (rollout.run_id, rollout.mode, rollout.metadata["task_id"]) == (run_id, "test", task)
    async with SqliteLightningStore(str(bench.folder / "store.sqlite")) as store:
        (run,) = (await store.query_runs()).items
    assert (run.command, run.status) == ("eval", "succeeded")


async def test_what_is_done_is_not_done_again_whatever_is_added(bench: Bench) -> None:
    await bench.evaluate(["a"], ["a", "b"])
    (report,) = await bench.evaluate(["a"], ["c", "b", "a"], repeats=2, resume=True)
    assert len(bench.seen) == 2 + 4
    assert [len(task.rewards) for task in report.tasks] == [2, 2, 2]


async def test_other_sampling_is_another_measurement(bench: Bench) -> None:
    await bench.evaluate(["a"], ["a"])
    await bench.evaluate(["a"], ["a"], temperature=0.0, resume=True)
    assert len(bench.seen) == 2


async def test_too_many_failures_stop_it_and_are_tried_again(bench: Bench) -> None:
    bench.fails = True
    with pytest.raises(RunStoppedError, match=r"2 of 2 rollouts of a gave no reward.*ValueError: down"):
        await bench.evaluate(["a"], ["a", "b"])
    bench.fails = False
    (report,) = await bench.evaluate(["a"], ["a", "b"], resume=True)
    assert report.reward.mean == 0.5


async def test_failures_that_are_allowed_are_counted(bench: Bench) -> None:
    bench.fails = True
    (report,) = await bench.evaluate(["a"], ["a"], max_bad_fraction=1.0)
    assert (report.reward.mean, report.counts.failed) == (None, {"ValueError": 1})


async def test_an_endpoint_of_the_proxy_is_a_model_and_gets_the_sampling(tmp_path: Any) -> None:
    seen: list[Any] = []

    async def agent(task: Any, llm: Any, policy_weights: Any) -> float:
        seen.append((llm.model, llm.sampling, policy_weights.policy_version))
        return 1.0

    run = EvaluationRun(
        agent=agent,
        data=Parts(),
        store=InMemoryLightningStore(),
        proxy=FakeProxy(big=ModelEndpoint(model="m", urls=("https://host/v1",))),  # type: ignore[arg-type]
        evaluation=EvaluationSettings(temperature=0.5, sampling={"stop": ["x"]}),
        run_dir=str(tmp_path),
    )
    weights = Weights(path="w", policy_version=3)
    one = Contestant(name="n", fingerprint="f", inference=None, resources={}, weights=weights)
    (report,) = await run.run([one], ["t"], mode="val")
    assert report.counts.succeeded == 1, report.tasks
    assert seen == [("big", {"temperature": 0.5, "top_p": 1.0, "stop": ["x"]}, 3)]


@pytest.mark.parametrize(
    ("tasks", "settings", "expected"),
    [
        ({"test": [1], "val": [2]}, {}, ("test", [1])),
        ({"val": [2, 3]}, {"limit": 1}, ("val", [2])),
        ({"test": [1], "train": [5]}, {"mode": "train"}, ("train", [5])),
    ],
)
def test_test_tasks_are_taken_where_there_are_some(
    tasks: Any, settings: Any, expected: Any, tmp_path: Any
) -> None:
    run = EvaluationRun(
        agent=lambda task: 1.0,
        data=Parts(**tasks),
        store=InMemoryLightningStore(),
        evaluation=EvaluationSettings(**settings),
        run_dir=str(tmp_path),
    )
    assert run.tasks() == expected


def test_no_held_out_tasks_are_an_error_that_says_what_to_do(tmp_path: Any) -> None:
    run = EvaluationRun(agent=lambda task: 1.0, data=Parts(train=[1]), store=InMemoryLightningStore())
    with pytest.raises(ConfigError, match=r"no test and no val tasks; evaluation.mode=train"):
        run.tasks()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "dev"}, "mode=dev: one of train, val, test"),
        ({"limit": 0}, "limit=0 must be at least 1"),
        ({"repeats": 0}, "repeats=0 must be at least 1"),
        ({"pass_at": [1, 4], "repeats": 2}, "pass@4 needs repeats=4"),
        ({"pass_at": [0]}, "pass@0 needs repeats=1"),
        ({"temperature": -1.0}, "temperature=-1.0 must not be negative"),
        ({"sampling": {"temperature": 0}}, "sampling.temperature has a setting of its own"),
        ({"max_bad_fraction": 2.0}, "max_bad_fraction=2.0 must be between 0 and 1"),
        ({"max_attempts": 0}, "max_attempts=0 must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvaluationSettings(**settings)


def test_pass_at_one_and_at_all_repeats_is_told_unless_asked_otherwise() -> None:
    assert EvaluationSettings().numbers_to_pass_at() == [1]
    assert EvaluationSettings(repeats=4).numbers_to_pass_at() == [1, 4]
    assert EvaluationSettings(repeats=4, pass_at=[2]).numbers_to_pass_at() == [2]


def test_nothing_is_forced_on_calls_that_nobody_set() -> None:
    assert EvaluationSettings().call_parameters() == {}
    assert EvaluationSettings(temperature=1.0, max_tokens=5).call_parameters() == {
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 5,
    }
    assert EvaluationSettings(temperature=1.0, sampling={"top_p": 0.9}).call_parameters()["top_p"] == 0.9


def test_equal_tasks_are_told_apart_and_ids_follow_the_content() -> None:
    first, second, third = task_ids([{"a": 1, "b": 2}, "x", {"b": 2, "a": 1}])
    assert third == f"{first}-2"
    assert first == digest_of({"b": 2, "a": 1})
    assert second not in (first, third)
    assert len(digest_of("\ud800")) == 12  # text that UTF-8 has not
