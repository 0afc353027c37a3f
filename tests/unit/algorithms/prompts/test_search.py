"""A whole search: held-out tasks are touched before and after only, and the chosen prompts are left for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prompt_searches import START
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.prompts.ongoing import Search
from agl.algorithms.prompts.search import PromptSearch
from agl.algorithms.prompts.spending import Budget
from agl.errors import ConfigError, RunStoppedError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptedRollout, PromptTemplate, ProxyLLM

RESOURCES = {"prompt": PromptTemplate(template=START)}
BETTER = PromptTemplate(template="Solve {task}")


class OneBetter(PromptSearch):
    """A search that knows a better prompt."""

    async def search(self, search: Search) -> None:
        child = search.start.changed("prompt", BETTER.template, made_by="test")
        await search.score([child], search.selection)
        await search.report()

    def most_rollouts(self, search: Search) -> int:
        return 2 * len(search.selection)


def script_of(claim: AttemptedRollout) -> Script:
    names = str(claim.rollout.metadata.get("candidate")), claim.rollout.rollout_id
    return Script(reward=0.75 if any(BETTER.template_id in name for name in names) else 0.25)


SETTINGS: Mapping[str, Any] = {"val_batch_size": 4}


async def test_held_out_tasks_are_run_before_and_after_with_the_first_and_the_best(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script_of) as (context, notebook, _, claimed),
    ):
        result = await OneBetter(**SETTINGS).run(replace(context, resources=RESOURCES))
        assert result.before[0].reward.mean == 0.25
        assert result.after[0].reward.mean == 0.75
        assert result.prompts["prompt"].template == BETTER.template
        assert result.first_prompts == RESOURCES
        assert (result.prompts_dir, result.iterations) == (tmp_path / "prompts", 2)
        assert (tmp_path / "prompts" / "best" / "prompt.txt").read_text() == BETTER.template
        held_out = [claim.rollout for claim in claimed if claim.rollout.task in context.val_tasks]
        assert [rollout.mode for rollout in held_out] == ["val"] * 4
        best = await store.get_latest_resources(run_id="run")
        assert best is not None
        assert best.resources["prompt"] == result.prompts["prompt"]
    assert sorted(notebook.values) == [0, 1]
    assert result.counts.enqueued == 8  # of training


async def test_the_agents_sampling_is_forced_and_recorded(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script_of) as (context, _, _, claimed),
    ):
        settings = OneBetter(**SETTINGS, temperature=0.5, max_tokens=9, sampling={"top_k": 3})
        await settings.run(replace(context, resources=RESOURCES))
        for claim in claimed:
            llm = (await store.get_resources_by_id(claim.rollout.resources_id or "")).resources["llm"]
            assert isinstance(llm, ProxyLLM)
            assert llm.sampling == {"top_p": 1.0, "top_k": 3, "temperature": 0.5, "max_tokens": 9}
            assert claim.rollout.metadata["sampling"] == llm.sampling


async def test_every_rollout_has_the_limits_of_the_settings_and_a_wait_says_for_whom(tmp_path: Path) -> None:
    limits: dict[str, Any] = {
        "rollout_timeout_seconds": 7.0,
        "unresponsive_seconds": 5.0,
        "max_attempts": 4,
        "retry_on": ("failed", "timeout"),
        "retry_delay_seconds": 0.5,
        "retry_max_delay_seconds": 2.0,
    }
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script_of) as (context, notebook, _, claimed),
    ):
        settings = OneBetter(**SETTINGS, **limits)
        await settings.run(replace(context, resources=RESOURCES))
    assert {claim.rollout.config for claim in claimed} == {settings.rollout_config()}
    assert settings.rollout_config().retry_on == ("failed", "timeout")
    assert notebook.waits[0] == ("preflight", "4 rollouts")
    assert ("evaluating", "2 rollouts") in notebook.waits


async def test_a_resumed_search_runs_nothing_twice_and_reports_anew(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        async with context_of(store, tmp_path, script_of) as (context, _, _, claimed):
            first = await OneBetter(**SETTINGS).run(replace(context, resources=RESOURCES))
        num_claimed = len(claimed)
        async with context_of(store, tmp_path, script_of, resume=True) as (context, notebook, _, claimed):
            second = await OneBetter(**SETTINGS).run(replace(context, resources=RESOURCES))
    assert (num_claimed, len(claimed)) == (8 + 4, 0)
    assert notebook.rewound == [-1]
    assert second.prompts == first.prompts
    assert second.counts == first.counts


async def test_a_budget_that_allows_nothing_ends_with_the_first_prompts(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script_of) as (context, _, _, claimed),
    ):
        settings = OneBetter(**SETTINGS, budget=Budget(max_rollouts=3))
        result = await settings.run(replace(context, resources=RESOURCES))
    assert "ended early: the next 4 rollouts would pass budget.max_rollouts=3" in result.diagnosis[0]
    assert result.prompts == RESOURCES
    assert result.before is result.after
    assert len(claimed) == 2
    assert result.further == "budget.max_rollouts=6"


async def test_a_search_that_a_budget_has_ended_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        async with context_of(store, tmp_path, script_of) as (context, _, _, _):
            settings = OneBetter(**SETTINGS, budget=Budget(max_rollouts=5))
            first = await settings.run(replace(context, resources=RESOURCES))
        assert (first.prompts, first.further) == (RESOURCES, "budget.max_rollouts=10")
        async with context_of(store, tmp_path, script_of, resume=True) as (context, _, _, _):
            settings = OneBetter(**SETTINGS, budget=Budget(max_rollouts=10))
            second = await settings.run(replace(context, resources=RESOURCES))
    assert second.prompts["prompt"].template == BETTER.template
    assert second.further == ""


async def test_an_evaluation_of_failures_stops_the_run_and_is_done_again_when_resumed(tmp_path: Path) -> None:
    up = {"up": False}

    def script(claim: AttemptedRollout) -> Script:
        if claim.rollout.mode == "val" and not up["up"]:
            return Script(error="ConnectError")
        return script_of(claim)

    settings = OneBetter(**SETTINGS, max_attempts=1)
    async with InMemoryLightningStore() as store:
        async with context_of(store, tmp_path, script) as (context, _, _, _):
            with pytest.raises(
                RunStoppedError, match=r"2 of 2 rollouts on the validation tasks.*ConnectError"
            ):
                await settings.run(replace(context, resources=RESOURCES))
        up["up"] = True
        async with context_of(store, tmp_path, script, resume=True) as (context, _, _, _):
            result = await settings.run(replace(context, resources=RESOURCES))
    assert result.before[0].reward.mean == 0.25


async def test_without_validation_tasks_nothing_is_evaluated(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script_of, val_tasks=()) as (context, _, _, _),
    ):
        result = await OneBetter(**SETTINGS).run(replace(context, resources=RESOURCES))
    assert result.before == result.after == []


def test_what_is_null_is_left_to_agent_and_model() -> None:
    settings = OneBetter(temperature=None, max_tokens=None, optimizer_max_tokens=None, sampling={"n": 1})
    assert settings.agent_sampling() == {"n": 1}
    assert settings.optimizer_sampling() == {"temperature": 1.0}
    assert settings.sampling_at(None) == {}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"val_batch_size": 1}, "val_batch_size"),
        ({"temperature": -1.0}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"sampling": {"temperature": 1.0}}, "sampling.temperature"),
        ({"max_bad_fraction": 1.5}, "max_bad_fraction"),
        ({"optimizer_timeout_seconds": 0.0}, "optimizer_timeout_seconds"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"retry_on": ("sometimes",)}, "retry_on"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        OneBetter(**settings)


def test_it_needs_no_learner() -> None:
    assert not OneBetter().needs_learner
    OneBetter().check(None, trainable=False)


async def test_a_resumed_search_whose_time_is_up_keeps_what_it_had_found(tmp_path: Path) -> None:
    settings = OneBetter(**SETTINGS, budget=Budget(max_minutes=10))
    async with InMemoryLightningStore() as store:
        async with context_of(store, tmp_path, script_of) as (context, _, _, _):
            first = await settings.run(replace(context, resources=RESOURCES))
            await store.add_metrics("run", 9, {"time/elapsed_seconds": 601.0})
        async with context_of(store, tmp_path, script_of, resume=True) as (context, _, _, claimed):
            second = await settings.run(replace(context, resources=RESOURCES))
    assert claimed == []
    assert second.prompts == first.prompts != RESOURCES
