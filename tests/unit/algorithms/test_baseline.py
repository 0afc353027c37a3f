"""The baseline measures and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.baseline import Baseline
from agl.errors import ConfigError
from agl.store.sqlite import InMemoryLightningStore


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
