from __future__ import annotations

from concurrent.futures import Future

import pytest
from scripted_batch import ScriptedBatch, call

from agl.errors import InferenceError
from agl.inference.rows import Call
from agl.inference.scheduler import Scheduler, Swap


def swap(scheduler: Scheduler, version: int, applied: list[int] | None = None) -> Future[None]:
    log = [] if applied is None else applied
    done: Future[None] = Future()
    scheduler.swap(Swap(apply=lambda: log.append(version), policy_version=version, done=done))
    return done


def run(scheduler: Scheduler) -> list[Call]:
    """Advance until nothing is left to do; return the calls in the order in which they ended."""
    ended = []
    while not scheduler.idle:
        ended += scheduler.advance()
    return ended


def test_calls_end_when_their_last_row_does():
    scheduler = Scheduler(ScriptedBatch(max_rows=8))
    long, short = call(1, 5), call(2, 2)
    scheduler.add(long)
    scheduler.add(short)
    assert run(scheduler) == [short, long]
    assert long.error is short.error is None


def test_more_rows_than_fit_wait_their_turn():
    batch = ScriptedBatch(max_rows=2)
    scheduler = Scheduler(batch)
    calls = [call(1), call(3, 3, 3), call(1)]
    for one in calls:
        scheduler.add(one)
    assert set(run(scheduler)) == set(calls)


def test_one_newcomer_joins_few_rows_at_once():
    batch = ScriptedBatch(max_rows=64)
    scheduler = Scheduler(batch)
    scheduler.add(call(*[9] * 8))
    scheduler.advance()
    scheduler.add(call(1))
    scheduler.advance()
    assert batch.admitted == [8, 1]


def test_newcomers_to_many_rows_wait_for_company_but_not_for_long():
    batch = ScriptedBatch(max_rows=64)
    scheduler = Scheduler(batch, max_steps_waited=4)
    scheduler.add(call(*[99] * 32))
    scheduler.advance()
    scheduler.add(call(1))  # 4 newcomers would be an eighth
    for _ in range(4):
        scheduler.advance()
    assert batch.admitted == [32]
    scheduler.advance()
    assert batch.admitted == [32, 1]
    scheduler.add(call(1, 1, 1, 1))
    scheduler.advance()
    assert batch.admitted == [32, 1, 4]


def test_a_swap_waits_for_the_calls_under_way_and_precedes_all_others():
    batch = ScriptedBatch(max_rows=2)
    scheduler = Scheduler(batch)
    under_way, later = call(2, 2, 2), call(1)  # the third row of the first call has no room yet
    scheduler.add(under_way)
    scheduler.add(later)
    scheduler.advance()
    unfinished: list[tuple[int, int]] = []
    done: Future[None] = Future()
    apply = lambda: unfinished.append((under_way.num_unfinished, later.num_unfinished))  # noqa: E731
    scheduler.swap(Swap(apply=apply, policy_version=7, done=done))
    assert run(scheduler) == [under_way, later]
    assert unfinished == [(0, 1)]
    assert done.done()
    assert (under_way.policy_version, later.policy_version) == (0, 7)
    assert batch.cleared == 1


def test_a_swap_that_fails_leaves_the_old_version_and_tells_its_caller():
    scheduler = Scheduler(ScriptedBatch())
    done: Future[None] = Future()

    def fail() -> None:
        raise InferenceError("does not fit", status=400)

    scheduler.swap(Swap(apply=fail, policy_version=1, done=done))
    scheduler.add(call(1))
    (ended,) = run(scheduler)
    assert ended.policy_version == scheduler.policy_version == 0
    with pytest.raises(InferenceError, match="does not fit"):
        done.result(timeout=0)


def test_a_swap_nobody_waits_for_any_more_is_not_made():
    scheduler = Scheduler(ScriptedBatch())
    applied: list[int] = []
    assert swap(scheduler, 1, applied).cancel()
    run(scheduler)
    assert applied == []


def test_an_exception_fails_the_calls_of_that_batch_only():
    batch = ScriptedBatch(max_rows=2)
    scheduler = Scheduler(batch)
    calls = [call(2), call(2, 2), call(1)]
    for one in calls:
        scheduler.add(one)
    batch.errors.append(RuntimeError("out of memory"))
    assert set(run(scheduler)) == set(calls)
    assert [one.error.status if one.error else None for one in calls] == [500, 500, None]
    assert "out of memory" in str(calls[0].error)
    assert batch.cleared == 1


def test_a_row_of_broken_numbers_fails_its_whole_call():
    batch = ScriptedBatch(max_rows=2)
    scheduler = Scheduler(batch)
    ill, well = call(9, 9, 9), call(1)
    scheduler.add(ill)
    scheduler.add(well)
    ill.rows[0].finish_reason = "error"
    assert run(scheduler) == [ill, well]
    assert ill.error is not None
    assert "NaN" in str(ill.error)
    assert well.error is None


def test_a_removed_call_leaves_batch_and_queue():
    batch = ScriptedBatch(max_rows=2)
    scheduler = Scheduler(batch)
    gone, other = call(9, 9, 9), call(1)
    scheduler.add(gone)
    scheduler.add(other)
    scheduler.advance()
    scheduler.remove(gone)
    assert batch.rows == []
    assert run(scheduler) == [other]
    scheduler.remove(gone)  # once more changes nothing
    assert scheduler.idle


def test_refusing_all_ends_calls_and_swaps_with_the_error():
    batch = ScriptedBatch(max_rows=1)
    scheduler = Scheduler(batch)
    calls = [call(9, 9), call(9)]
    for one in calls:
        scheduler.add(one)
    scheduler.advance()
    done = swap(scheduler, 1)
    closed = InferenceError("closed", status=503)
    assert scheduler.refuse_all(closed) == calls
    assert [one.error for one in calls] == [closed, closed]
    assert done.exception(timeout=0) is closed
    assert scheduler.idle
    assert batch.rows == []


def test_a_streamed_call_is_told_of_every_step_once_it_has_begun():
    scheduler = Scheduler(ScriptedBatch(max_rows=2))
    plain, streamed = call(3, 3), call(2, 4)
    streamed.streamed = True
    scheduler.add(plain)
    scheduler.add(streamed)
    steps = []
    while not scheduler.idle:
        steps.append(scheduler.advance())
    assert steps == [[], [], [plain], [streamed], [streamed], [streamed], [streamed]]


@pytest.mark.parametrize("how", ["removed", "failed", "refused"])
def test_a_streamed_call_that_is_gone_is_told_of_no_more(how: str):
    batch = ScriptedBatch(max_rows=4)
    scheduler = Scheduler(batch)
    streamed = call(9)
    streamed.streamed = True
    scheduler.add(streamed)
    assert scheduler.advance() == [streamed]
    if how == "removed":
        scheduler.remove(streamed)
    elif how == "failed":
        batch.errors.append(RuntimeError("broken"))
        assert scheduler.advance() == [streamed]
    else:
        assert scheduler.refuse_all(InferenceError("closed", status=503)) == [streamed]
    one = call(1)
    scheduler.add(one)
    assert scheduler.advance() == [one]
