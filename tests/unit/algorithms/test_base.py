"""What an algorithm works with: names and steps of its own within the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from run_contexts import context_of
from scripted_worker import Script

from agl.store.sqlite import InMemoryLightningStore
from agl.types import MetricQuery


async def test_a_stage_has_ids_and_steps_of_its_own(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, lambda _: Script()) as (context, book, _, _),
    ):
        assert context.prefix == "run"
        assert await context.ends_now() is None
        stage = replace(context, stage="rl", first_step=5)
        assert stage.prefix == "run-rl"
        await stage.report(2, {"a": 1.0})
        await stage.keep(3, {"b": 2.0})
        points = (await store.query_metrics(MetricQuery(run_id="run"))).items
    assert [(point.step, point.name, point.value) for point in points] == [(7, "a", 1.0), (8, "b", 2.0)]
    assert book.values == {2: {"a": 1.0}}  # a stage's sink shifts the steps itself
