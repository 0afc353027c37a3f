"""The settings with which recorded rollouts run again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from recorded_folder import recorded_folder

from agl.cli.rerun_settings import recorded_choice, rerun_parts, rerun_settings, split_arguments
from agl.config import Settings
from agl.errors import ConfigError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PromptTemplate, ProxyLLM, Rollout

ROLLOUT = Rollout(rollout_id="one-0", run_id="one", task=0, created_at=0.0)


def test_ids_are_told_from_overrides() -> None:
    found = split_arguments(["ro-1", "+recipe=x", "a.b=c", "one-0-retry-1", "~proxy"])
    assert found == (["ro-1", "one-0-retry-1"], ["+recipe=x", "a.b=c", "~proxy"])


def test_they_are_those_of_the_run_with_overrides(in_folder: Path) -> None:
    asyncio.run(recorded_folder(in_folder, [0]))
    settings = rerun_settings(ROLLOUT, "runs/one/store.sqlite", ["name=other"], config_dir=None)
    assert (settings.values["name"], settings.values["run_dir"]) == ("other", "runs/one")
    with pytest.raises(ConfigError, match="--config-dir: the settings are those of runs/one"):
        rerun_settings(ROLLOUT, None, [], config_dir=Path())


def test_without_the_run_a_recipe_or_an_agent_says_what_runs(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"looked for runs/one/settings\.yaml.*: say what runs it"):
        rerun_settings(ROLLOUT, None, ["name=x"], config_dir=None)
    (in_folder / "mine.py").write_text("def agent(task):\n    return 1.0\n")
    settings = rerun_settings(ROLLOUT, None, ["agent.target=mine.py:agent"], config_dir=None)
    parts = rerun_parts(settings, with_model=True)
    assert "inference" not in parts.values  # nobody named a model
    assert "algorithm" not in parts.values


def test_only_what_a_rerun_is_built_of_is_kept() -> None:
    values = {"agent": {}, "algorithm": {}, "inference": {"model": "m"}, "name": "n", "store": {}}
    settings = Settings(source="x", raw=values, values=values)
    assert set(rerun_parts(settings, with_model=True).values) == {"_target_", "agent", "inference", "name"}
    assert set(rerun_parts(settings, with_model=False).values) == {"_target_", "agent", "name"}


async def test_the_model_that_answered_is_that_of_the_recorded_resources(in_folder: Path) -> None:
    async with InMemoryLightningStore() as store:
        resources = {"p": PromptTemplate(template="t"), "llm": ProxyLLM(base_url="http://gone", model="m")}
        named = await store.add_resources(resources, run_id="one")
        rollout = ROLLOUT.model_copy(update={"resources_id": named.resources_id})
        choice = await recorded_choice(store, rollout, None)
        assert choice is not None
        assert (choice.name, list(choice.resources), choice.weights) == (named.resources_id, ["p"], None)
        assert await recorded_choice(store, ROLLOUT, None) is None
        with pytest.raises(ConfigError, match="the store has no resources gone"):
            await recorded_choice(store, ROLLOUT, None, resources_id="gone")
