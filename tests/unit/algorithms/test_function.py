"""An async function is an algorithm: the run's parts in by name, resources out, measured before and after."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_contexts import Notebook, context_of
from scripted_worker import Script

import agl
from agl.algorithms.base import RunContext
from agl.algorithms.function import FunctionAlgorithm, algo, as_algorithm
from agl.errors import ConfigError, RunStoppedError
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore
from agl.types import (
    AttemptedRollout,
    PolicyLoss,
    PromptTemplate,
    ProxyLLM,
    RolloutQuery,
    RolloutRequest,
    TrainingSample,
)

START = PromptTemplate(template="Add {task}")
BETTER = START.changed_to("Add well: {task}")


@asynccontextmanager
async def run_of(
    folder: Path,
    script: Callable[[str, AttemptedRollout], Script] = lambda prompt, _: Script(
        reward=0.75 if "well" in prompt else 0.25
    ),
    *,
    store: LightningStore | None = None,
    resume: bool = False,
    **given: Any,
) -> AsyncGenerator[tuple[RunContext, Notebook, list[AttemptedRollout]]]:
    """A context with a prompt; the reward of a rollout follows from the prompt that it was given."""
    prompts: dict[str, str] = {}

    def script_of(claim: AttemptedRollout) -> Script:
        return script(prompts[claim.rollout.resources_id or ""], claim)

    async with (
        store or InMemoryLightningStore() as opened,
        context_of(opened, folder, script_of, resume=resume, **given) as (context, book, _, claimed),
    ):
        publish = context.policy.publish

        async def remembered(purpose: str, resources: Any) -> str:
            resources_id = await publish(purpose, resources)
            prompts[resources_id] = resources["prompt"].template
            return resources_id

        context.policy.publish = remembered  # type: ignore[method-assign]
        yield replace(context, resources={"prompt": START}), book, claimed


async def test_what_the_function_returns_is_published_and_measured(tmp_path: Path) -> None:
    @algo
    async def better(data: Any, roll_out: Any, report: Any, prompt: Any) -> Any:
        assert prompt == START
        rollouts = await roll_out(data.train[:2], {"prompt": BETTER}, label="try")
        await report(1, {"train/reward": rollouts[0].reward})
        return {"prompt": BETTER}

    async with run_of(tmp_path) as (context, book, claimed):
        result = await FunctionAlgorithm(function=better).run(context)
        (name,) = [note for note in result.diagnosis if "chosen resources" in note]
        chosen = await context.store.get_resources_by_id(name.split()[-1])
    assert (result.before[0].reward.mean, result.after[0].reward.mean) == (0.25, 0.75)
    assert result.counts.enqueued == 2  # of training
    assert book.values == {
        0: {"val/reward_greedy": 0.25},
        1: {"train/reward": 0.75},
        2: {"val/reward_greedy": 0.75},
    }
    assert chosen.resources["prompt"] == BETTER
    assert (result.prompts, result.first_prompts) == ({"prompt": BETTER}, {"prompt": START})
    assert (tmp_path / "prompts" / "best" / "prompt.txt").read_text() == BETTER.template
    assert [claim.rollout.rollout_id for claim in claimed if claim.rollout.mode == "train"] == [
        "run-try-0",
        "run-try-1",
    ]


async def test_nothing_returned_is_nothing_changed(tmp_path: Path) -> None:
    @algo
    async def lazy() -> None:
        return None

    async with run_of(tmp_path) as (context, _, claimed):
        result = await FunctionAlgorithm(function=lazy).run(context)
    assert result.after is result.before
    assert len(claimed) == 2  # the validation tasks once


@pytest.mark.parametrize("as_id", [True, False])
async def test_resources_that_the_function_published_itself_count(tmp_path: Path, as_id: bool) -> None:
    @algo
    async def own(store: Any, resources: Any, run_id: str) -> Any:
        named = await store.add_resources({**resources, "prompt": BETTER}, run_id=run_id)
        request = RolloutRequest(task=7, run_id=run_id, mode="train", resources_id=named.resources_id)
        rollout = await store.enqueue_rollout(request)
        prompts[named.resources_id] = BETTER.template
        await store.wait_for_rollouts([rollout.rollout_id])
        return named.resources_id if as_id else named

    prompts: dict[str, str] = {}

    def script(prompt: str, _: AttemptedRollout) -> Script:
        return Script(reward=0.75 if "well" in prompt else 0.25)

    async with InMemoryLightningStore() as store:

        def script_of(claim: AttemptedRollout) -> Script:
            return script(prompts.get(claim.rollout.resources_id or "", ""), claim)

        async with context_of(store, tmp_path, script_of) as (context, _, _, _):
            result = await FunctionAlgorithm(function=own).run(replace(context, resources={"prompt": START}))
    assert result.prompts["prompt"] == BETTER
    assert result.counts.succeeded == 1


async def test_agents_reach_the_model_with_the_settings_sampling(tmp_path: Path) -> None:
    @algo
    async def warmer(resources: Any, roll_out: Any) -> Any:
        llm = resources["llm"].model_copy(update={"sampling": {"temperature": 0.5}})
        await roll_out([1], {"llm": llm}, label="warm")
        return {"llm": llm}

    async with run_of(tmp_path) as (context, _, claimed):
        await FunctionAlgorithm(function=warmer, max_tokens=9, sampling={"top_k": 5}).run(context)
        models = {}
        for claim in claimed:
            named = await context.store.get_resources_by_id(claim.rollout.resources_id or "")
            models[claim.rollout.rollout_id] = named.resources["llm"]
    cold = {"top_p": 1.0, "top_k": 5, "temperature": 0.0, "max_tokens": 9}
    assert all(isinstance(llm, ProxyLLM) and llm.base_url == "http://127.0.0.1:1" for llm in models.values())
    assert models["run-warm-0"].sampling == {"temperature": 0.5}
    evaluated = [llm.sampling for name, llm in models.items() if "-val-" in name]
    assert evaluated == [cold, cold, {"temperature": 0.5}, {"temperature": 0.5}]


async def test_a_resumed_run_pays_for_nothing_twice(tmp_path: Path) -> None:
    is_interrupted = True

    @algo
    async def two_rounds(data: Any, roll_out: Any) -> Any:
        await roll_out(data.train[:2], {"prompt": BETTER})
        if is_interrupted:
            raise KeyError("stop")
        await roll_out(data.train[:2], {"prompt": START})
        return {"prompt": BETTER}

    path = str(tmp_path / "store.sqlite")
    async with run_of(tmp_path, store=agl.SqliteLightningStore(path)) as (context, _, claimed):
        with pytest.raises(KeyError, match="stop"):
            await FunctionAlgorithm(function=two_rounds).run(context)
        first = [claim.rollout.rollout_id for claim in claimed]
    is_interrupted = False
    async with run_of(tmp_path, store=agl.SqliteLightningStore(path), resume=True) as (context, _, claimed):
        result = await FunctionAlgorithm(function=two_rounds).run(context)
        second = [claim.rollout.rollout_id for claim in claimed]
    assert len(first) == 2 + 2
    assert sorted(set(first) & set(second)) == []
    assert [name for name in second if "-val-" not in name] == ["run-call-2-0", "run-call-2-1"]
    assert result.counts.enqueued == 4


async def test_other_resources_under_the_same_label_are_run_again(tmp_path: Path) -> None:
    @algo
    async def same_label(roll_out: Any) -> Any:
        first = await roll_out([1], {"prompt": START}, label="x")
        second = await roll_out([1], {"prompt": BETTER}, label="x")
        assert (first[0].reward, second[0].reward) == (0.25, 0.75)

    async with run_of(tmp_path) as (context, _, _):
        await FunctionAlgorithm(function=same_label).run(context)


async def test_rollouts_left_open_are_cancelled_and_told(tmp_path: Path) -> None:
    @algo
    async def forgetful(store: Any, run_id: str) -> None:
        await store.enqueue_rollout(
            RolloutRequest(task=1, run_id=run_id, mode="train", resources_id=last["id"])
        )

    last: dict[str, str] = {}

    def hanging(_: str, claim: AttemptedRollout) -> Script:
        last["id"] = claim.rollout.resources_id or ""
        return Script(reward=1.0, hangs=claim.rollout.mode == "train")

    async with run_of(tmp_path, hanging) as (context, _, _):
        result = await FunctionAlgorithm(function=forgetful).run(context)
        page = await context.store.query_rollouts(RolloutQuery(mode="train"))
    assert [rollout.status for rollout in page.items] == ["cancelled"]
    assert "1 rollouts that the algorithm did not wait for were cancelled" in result.diagnosis


async def test_an_agent_that_fails_stops_the_run_before_the_function_is_called(tmp_path: Path) -> None:
    @algo
    async def never() -> None:
        raise AssertionError

    async with run_of(tmp_path, lambda *_: Script(error="TypeError")) as (context, _, _):
        with pytest.raises(RunStoppedError, match=r"2 of 2 .*max_bad_fraction=0\.5.*TypeError"):
            await FunctionAlgorithm(function=never).run(context)


async def test_moved_weights_are_saved_and_measured(tmp_path: Path) -> None:
    @algo
    async def nudge(learner: Any, policy: Any, context: Any) -> None:
        assert context.learner is learner
        await learner.update([sample], PolicyLoss())
        await policy.load(await learner.weights())

    sample = TrainingSample(
        token_ids=[1, 2], loss_mask=[0, 1], old_logprobs=[0.0, -0.1], advantages=[0.0, 1.0], rollout_id="r"
    )
    settings = FunctionAlgorithm(function=nudge)
    assert settings.needs_learner
    with pytest.raises(ConfigError, match="nudge takes a learner"):
        settings.check(None, trainable=True)
    async with run_of(tmp_path) as (context, _, claimed):
        result = await settings.run(context)
        assert result.policy_dir == tmp_path / "policy"
        assert result.after is not result.before
    assert len(claimed) == 4


def test_what_is_null_is_not_forced_on_the_model() -> None:
    settings = FunctionAlgorithm(function=named, temperature=None, max_tokens=None, sampling={"top_k": 5})
    assert settings.agent_sampling() == {"top_k": 5}


@algo
async def named(*, size: int = 3) -> None:
    """An algorithm in a file."""


def test_settings_are_checked_before_anything_runs() -> None:
    FunctionAlgorithm(function=named, settings={"size": 4})
    with pytest.raises(ConfigError, match=r"settings\.sise is not a parameter of named.*settings\.size"):
        FunctionAlgorithm(function=named, settings={"sise": 4})
    with pytest.raises(ConfigError, match="evaluate_repeats=0"):
        FunctionAlgorithm(function=named, evaluate_repeats=0)
    with pytest.raises(ConfigError, match=r"sampling\.temperature has a setting of its own"):
        FunctionAlgorithm(function=named, sampling={"temperature": 1})


def test_what_is_no_async_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be an async function"):

        @algo
        def plain() -> None: ...

    with pytest.raises(ConfigError, match="class Path is not an algorithm"):
        as_algorithm(Path)
    with pytest.raises(ConfigError, match="a int is not an algorithm"):
        as_algorithm(3)


def test_functions_names_and_algorithms_are_algorithms() -> None:
    assert as_algorithm(named) == FunctionAlgorithm(function=named)
    assert as_algorithm(as_algorithm(named)) == as_algorithm(named)
    found = as_algorithm(f"{__file__}:named")
    assert isinstance(found, FunctionAlgorithm)
    assert found.function.__doc__ == named.__doc__


async def test_an_answer_that_is_no_resources_is_refused(tmp_path: Path) -> None:
    @algo
    async def wrong() -> int:
        return 3

    async with run_of(tmp_path) as (context, _, _):
        with pytest.raises(ConfigError, match=r"wrong returned a int; it must return resources by name"):
            await FunctionAlgorithm(function=wrong).run(context)
