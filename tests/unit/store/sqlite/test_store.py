"""The stores as components: settings, opening, reopening."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

import agl.store.sqlite
from agl.errors import ConfigError, StoreError
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import LLM, RolloutRequest, Span, SpanQuery

CONFIGS = Path(__file__).parents[4] / "configs" / "store"


@pytest.mark.parametrize("name", ["sqlite", "memory"])
def test_the_settings_are_the_constructors_arguments(name: str) -> None:
    node: dict[str, Any] = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    target = getattr(agl.store.sqlite, node.pop("_target_").rsplit(".", 1)[1])
    assert list(node) == list(inspect.signature(target).parameters)


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_is_no_file_is_a_wrong_setting(path: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.path"):
        SqliteLightningStore(path)


async def test_a_file_keeps_everything_over_close_and_open(tmp_path: Path) -> None:
    store = SqliteLightningStore(str(tmp_path / "run" / "store.sqlite"))
    async with store:
        identity = (await store.health())["identity"]
        await store.add_run(name="r", run_id="r")
        await store.add_resources({"llm": LLM(base_url="u", model="m")}, resources_id="rs")
        await store.enqueue_many_rollouts([RolloutRequest(task=n, run_id="r") for n in range(3)])
        held = await store.dequeue_rollout(worker_id="w", request_id="q")
        assert held is not None
        key = (held.rollout.rollout_id, held.attempt.attempt_id)
        span = Span(
            span_id="s", trace_id="t", name="n", start_time_ns=1, rollout_id=key[0], attempt_id=key[1]
        )
        stored = await store.add_span(span)
        assert await store.get_next_span_sequence_id(*key) == 2
        await store.add_metrics("r", 1, {"loss": 1.0})
        before = await store.statistics()
        order = [one.rollout_id for one in (await store.query_rollouts()).items]
    async with store:
        assert (await store.health())["identity"] == identity
        assert await store.statistics() == before
        assert [one.rollout_id for one in (await store.query_rollouts()).items] == order
        again = await store.dequeue_rollout(worker_id="w", request_id="q")
        assert again is not None
        assert again.attempt.attempt_id == key[1]
        assert await store.get_next_span_sequence_id(*key) == 3
        assert (await store.query_spans(SpanQuery())).items == [stored]
        late = await store.enqueue_rollout(RolloutRequest(task="late"))
        tasks = [one.rollout.task for one in await store.dequeue_many_rollouts(worker_id="w", limit=5)]
        assert tasks == [1, 2, late.task]


async def test_the_same_file_is_opened_once(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    async with SqliteLightningStore(path) as store:
        with pytest.raises(StoreError, match="is open in process"):
            await SqliteLightningStore(path).open()
        store.announce("http://127.0.0.1:4747")
        with pytest.raises(StoreError, match="serves it at http://127"):
            await SqliteLightningStore(path).open()
    InMemoryLightningStore().announce("http://127.0.0.1:4747")  # there is nobody who could ask


async def test_each_memory_store_is_a_store_of_its_own() -> None:
    async with InMemoryLightningStore() as one, InMemoryLightningStore() as other:
        await one.enqueue_rollout(RolloutRequest(task="t"))
        assert await other.dequeue_rollout(worker_id="w") is None
        assert (await one.health())["identity"] != (await other.health())["identity"]
