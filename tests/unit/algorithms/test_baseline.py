"""The baseline measures and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.baseline import Baseline
from agl.errors import ConfigError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ProxyLLM


async def test_every_validation_task_is_run_at_each_temperature(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda c: Script(reward=float(c.rollout.task == 100))) as (
            context,
            book,
            learner,
            _,
        ),
    ):
        result = await Baseline(repeats=3).run(context)
        assert learner.updates == []
    assert book.values[0] == {"val/reward": 0.5, "val/reward_greedy": 0.5}
    assert result.counts.enqueued == 2 * 3 * 2


async def test_no_validation_tasks_is_an_error(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(), val_tasks=()) as (context, _, _, _),
    ):
        with pytest.raises(ConfigError, match="no validation tasks"):
            await Baseline().run(context)


async def test_sampling_parameters_reach_the_calls(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(reward=1.0)) as (context, _, _, claimed),
    ):
        await Baseline(temperatures=[0.5], sampling={"top_p": 0.9, "top_k": 5}).run(context)
        resources_id = claimed[0].rollout.resources_id
        assert resources_id is not None
        llm = (await store.get_resources_by_id(resources_id)).resources["llm"]
    assert isinstance(llm, ProxyLLM)
    assert llm.sampling == {"top_p": 0.9, "top_k": 5, "max_tokens": 1024, "temperature": 0.5}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"sampling": {"temperature": 0.7}}, "temperatures"),
        ({"sampling": {"max_tokens": 7}}, "max_tokens"),
        ({"repeats": 0}, "repeats"),
        ({"temperatures": []}, "temperatures"),
        ({"temperatures": [-1.0]}, "temperatures"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"rollout_timeout_seconds": 0.0}, "rollout_timeout_seconds"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Baseline(**settings)


async def test_a_resumed_baseline_reports_its_numbers_once(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script(reward=1.0), resume=True) as (context, notebook, _, _),
    ):
        await Baseline().run(context)
    assert notebook.rewound == [-1]
