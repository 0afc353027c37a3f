import pytest

from agl.errors import ConflictError, NotFoundError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest, Span, SpanQuery


async def _finished(store, rollout_id, run_id):
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id=rollout_id, run_id=run_id))
    attempt_id = held.attempt.attempt_id
    span = Span(span_id=rollout_id, trace_id=rollout_id, name="s", start_time_ns=1, attempt_id=attempt_id)
    await store.add_span(span)
    await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)


async def test_a_deleted_run_takes_all_that_was_its_own_and_nothing_else():
    async with InMemoryLightningStore() as store:
        await store.add_run(name="x", run_id="old")
        await _finished(store, "a", "old")
        await _finished(store, "b", "other")
        await store.add_metrics("old", 1, {"reward": 1.0})
        await store.update_run("old", status="succeeded")
        gone = await store.delete_run("old")
        assert gone == {"rollouts": 1, "attempts": 1, "spans": 1, "metrics": 1, "resources": 0}
        assert [one.rollout_id for one in (await store.query_rollouts()).items] == ["b"]
        assert not (await store.query_runs()).items
        with pytest.raises(NotFoundError):
            await store.delete_run("old")


async def test_a_run_under_way_is_not_deleted():
    async with InMemoryLightningStore() as store:
        await store.add_run(name="x", run_id="now")
        with pytest.raises(ConflictError, match="running"):
            await store.delete_run("now")
        await store.update_run("now", status="interrupted")
        await store.enqueue_rollout(RolloutRequest(task=1, run_id="now"))
        with pytest.raises(ConflictError, match="open rollouts"):
            await store.delete_run("now")


async def test_spans_of_open_rollouts_are_never_deleted():
    async with InMemoryLightningStore() as store:
        await _finished(store, "done", "run")
        held = await store.start_rollout(RolloutRequest(task=1, rollout_id="open", run_id="run"))
        span = Span(span_id="1", trace_id="2", name="s", start_time_ns=1, attempt_id=held.attempt.attempt_id)
        await store.add_span(span)
        assert await store.delete_spans(finished_before=1e12, run_id="run") == 1
        assert [one.rollout_id for one in (await store.query_spans(SpanQuery())).items] == ["open"]
