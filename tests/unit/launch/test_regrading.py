"""Recorded rollouts graded anew."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import agl
from agl.launch.regrading import Regraded, Regrading, count_regraded
from agl.runners.inline import InlineRunners
from agl.store.paging import iter_rollouts
from agl.store.sqlite import InMemoryLightningStore
from agl.tracing.reward import Reward
from agl.types import LLM, PromptTemplate, ProxyLLM, RolloutRequest, SpanQuery


@pytest.fixture
async def store() -> AsyncIterator[InMemoryLightningStore]:
    async with InMemoryLightningStore() as store:
        yield store


async def run(
    store: InMemoryLightningStore, agent: Any, *tasks: Any, grader: Callable[..., object] | None = None
) -> list[str]:
    resources = {
        "llm": ProxyLLM(base_url="http://127.0.0.1:1", model="m"),
        "prompt": PromptTemplate(template="{x}"),
    }
    named = await store.add_resources(resources)
    requests = [RolloutRequest(task=task, resources_id=named.resources_id) for task in tasks]
    async with InlineRunners().running(store, agent, grader=grader):
        ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
        await store.wait_for_rollouts(ids)
    return ids


async def regraded(
    store: InMemoryLightningStore, grader: Callable[..., object], **options: Any
) -> tuple[list[Regraded], Counter[str]]:
    numbers = itertools.count(1)
    work = Regrading(
        store,
        grader,
        name=options.pop("name", "mine.py:grade"),
        now_ns=lambda: 10**18,
        new_span_id=lambda: f"{next(numbers):016x}",
        **options,
    )
    skipped: Counter[str] = Counter()
    return [one async for one in work.regraded(iter_rollouts(store), skipped)], skipped


async def answer(task: Any) -> dict[str, Any]:
    agl.emit_message(f"thinking of {task}")
    return {"reward": task / 10, "length": 2.0}


async def test_a_grader_gets_from_the_record_what_it_got_when_the_rollout_ran(
    store: InMemoryLightningStore,
) -> None:
    seen: list[dict[str, Any]] = []

    def grade(
        result: Any, spans: Any, task: Any, rollout: Any, attempt: Any, llm: Any, prompt: Any, resources: Any
    ) -> float:
        names = ("result", "spans", "task", "rollout", "attempt", "llm", "prompt", "resources")
        values = (result, spans, task, rollout, attempt, llm, prompt, resources)
        seen.append(dict(zip(names, values, strict=True)))
        return 0.25

    async def agent(task: Any) -> object:
        agl.emit_message(f"thinking of {task}")
        agl.emit_reward(0.5)
        return {"words": ["a", "b"]}

    await run(store, agent, "t", grader=grade)
    await regraded(store, grade)
    then, now = seen
    for name in ("result", "task", "llm", "prompt", "resources"):
        assert now[name] == then[name], name
    assert isinstance(now["llm"], LLM)
    assert [span.name for span in now["spans"]] == ["agl.message", "agl.reward"]
    assert now["spans"] == then["spans"]
    assert (now["rollout"].status, now["rollout"].reward, now["rollout"].finished_at) == (
        "running",
        None,
        None,
    )
    assert (now["attempt"].status, now["attempt"].finished_at) == ("running", None)
    assert now["rollout"].rollout_id == then["rollout"].rollout_id


async def test_new_rewards_are_compared_with_the_old_ones_and_nothing_is_written(
    store: InMemoryLightningStore,
) -> None:
    await run(store, answer, 0, 5, 10)
    num_spans = (await store.statistics())["spans"]
    found, skipped = await regraded(store, lambda task, result: min(1.0, result["reward"] * 2))
    assert [(one.before, one.after, one.changed) for one in found] == [
        (0.0, Reward(value=0.0), False),
        (0.5, Reward(value=1.0), True),
        (1.0, Reward(value=1.0), False),
    ]
    counts = count_regraded(found, skipped)
    assert (counts.graded, counts.changed, counts.before, counts.after) == (3, 1, 0.5, pytest.approx(2 / 3))
    assert (await store.statistics())["spans"] == num_spans


async def test_a_failing_grader_is_counted_by_its_cause_and_is_no_zero(store: InMemoryLightningStore) -> None:
    await run(store, answer, 1, 2, 3, 4)

    def grade(task: int) -> object:
        if task == 2:
            raise KeyError("colour")
        return "good" if task == 3 else None if task == 4 else 0.5

    found, skipped = await regraded(store, grade)
    assert [one.after for one in found] == [Reward(value=0.5), None, None, None]
    counts = count_regraded(found, skipped)
    assert counts.failed == {"KeyError": 1, "TypeError": 1}
    assert (counts.graded, counts.without_reward, counts.after) == (2, 1, 0.5)
    assert found[1].message == "'colour'"


async def test_without_an_opinion_the_last_emitted_reward_stands_and_not_the_old_verdict(
    store: InMemoryLightningStore,
) -> None:
    async def agent(task: Any) -> float:
        agl.emit_reward(0.1)
        agl.emit_reward(0.2)
        return 1.0

    await run(store, agent, "t")
    (found,), _ = await regraded(store, lambda task: None)
    assert (found.before, found.after) == (1.0, Reward(value=0.2))


async def test_only_rollouts_whose_agent_returned_are_graded(store: InMemoryLightningStore) -> None:
    async def agent(task: str) -> str:
        if task == "breaks":
            raise RuntimeError(task)
        return task

    def strict(result: str) -> float:
        if result == "ungradable":
            raise ValueError(result)
        return 1.0

    await run(store, agent, "fine", "breaks", "ungradable", grader=strict)
    cancelled = await store.enqueue_rollout(RolloutRequest(task="never"))
    await store.cancel_rollout(cancelled.rollout_id)
    await store.enqueue_rollout(RolloutRequest(task="waits"))
    found, skipped = await regraded(store, lambda result: len(result) / 10)
    assert [(one.before, one.after) for one in found] == [
        (1.0, Reward(value=0.4)),
        (None, Reward(value=1.0)),
    ]
    assert skipped == {"failed": 1, "cancelled": 1, "pending": 1}


async def test_a_record_without_the_result_fails_a_grader_that_needs_it(
    store: InMemoryLightningStore,
) -> None:
    started = await store.start_rollout(RolloutRequest(task="old"))
    ids = started.rollout.rollout_id, started.attempt.attempt_id
    await store.update_attempt(*ids, status="succeeded", reward=1.0)
    (needs,), _ = await regraded(store, lambda result: 1.0)
    (does_not,), _ = await regraded(store, lambda task: 0.5)
    assert (needs.cause, needs.after) == ("result_not_recorded", None)
    assert does_not.after == Reward(value=0.5)


async def test_a_written_regrade_stands_beside_the_old_reward_and_is_written_once(
    store: InMemoryLightningStore,
) -> None:
    (rollout_id,) = await run(store, answer, 5)
    (first,), _ = await regraded(store, lambda task: {"reward": 0.75, "form": 1.0}, writes=True)
    (again,), _ = await regraded(store, lambda task: {"reward": 0.75, "form": 1.0}, writes=True)
    assert (first.written, again.written) == (True, False)
    (span,) = (await store.query_spans(SpanQuery(rollout_id=rollout_id, name="agl.regrade"))).items
    (root,) = (await store.query_spans(SpanQuery(rollout_id=rollout_id, name="agl.rollout"))).items
    assert span.attributes == {
        "agl.reward.value": 0.75,
        "agl.reward.dimension.reward": 0.75,
        "agl.reward.dimension.form": 1.0,
        "agl.regrade.grader": "mine.py:grade",
    }
    assert (span.trace_id, span.parent_id, span.attempt_id) == (root.trace_id, root.span_id, root.attempt_id)
    rollout = await store.get_rollout_by_id(rollout_id)
    assert (rollout.reward, rollout.status) == (0.5, "succeeded")


async def test_settings_fill_further_parameters_of_a_grader(store: InMemoryLightningStore) -> None:
    def grade(task: int, factor: float) -> float:
        return task * factor

    await run(store, answer, 3)
    (found,), _ = await regraded(store, grade, settings={"factor": 0.5})
    assert found.after == Reward(value=1.5)
