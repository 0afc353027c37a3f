from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Event, current_thread

import pytest
from scripted_batch import ScriptedBatch, call

from agl.inference.rows import Call
from agl.inference.worker import BatchWorker

SECONDS = 10


class Delivered:
    """The calls that ended, one by one."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Call] = SimpleQueue()

    def __call__(self, calls: Sequence[Call]) -> None:
        for one in calls:
            self.queue.put(one)

    def next(self) -> Call:
        return self.queue.get(timeout=SECONDS)


def started(batch: ScriptedBatch, delivered: Delivered) -> BatchWorker:
    worker = BatchWorker(lambda: batch, delivered)
    worker.start()
    worker.ready.result(timeout=SECONDS)
    return worker


def test_calls_are_sampled_in_the_workers_thread_until_it_stops():
    batch, delivered, names = ScriptedBatch(), Delivered(), set[str]()
    batch.on_step = lambda: names.add(current_thread().name)
    worker = started(batch, delivered)
    for length in (3, 1):
        one = call(length)
        worker.submit(one)
        assert delivered.next() is one
    worker.stop()
    worker.join()
    assert names == {"agl-inference"}


def test_a_load_that_fails_is_reported_and_ends_the_thread():
    def load() -> ScriptedBatch:
        raise ValueError("no such model")

    worker = BatchWorker(load, Delivered())
    worker.start()
    with pytest.raises(ValueError, match="no such model"):
        worker.ready.result(timeout=SECONDS)
    worker.join()


def test_stopping_fails_the_calls_that_have_not_ended():
    batch, delivered, stepping = ScriptedBatch(max_rows=1), Delivered(), Event()
    batch.on_step = stepping.set
    worker = started(batch, delivered)
    calls = [call(10**9), call(1)]
    for one in calls:
        worker.submit(one)
    assert stepping.wait(SECONDS)
    worker.stop()
    worker.join()
    assert {delivered.next(), delivered.next()} == set(calls)
    assert [one.error.status if one.error else None for one in calls] == [503, 503]


def test_a_cancelled_call_makes_room_and_is_not_delivered():
    batch, delivered, stepping = ScriptedBatch(max_rows=1), Delivered(), Event()
    batch.on_step = stepping.set
    worker = started(batch, delivered)
    endless, next_one = call(10**9), call(1)
    worker.submit(endless)
    assert stepping.wait(SECONDS)
    worker.submit(next_one)
    worker.cancel(endless)
    assert delivered.next() is next_one
    worker.stop()
    worker.join()
    assert delivered.queue.empty()


def test_a_swap_changes_the_version_that_later_calls_carry():
    batch, delivered, applied = ScriptedBatch(), Delivered(), Event()
    worker = started(batch, delivered)
    worker.swap(applied.set, 5).result(timeout=SECONDS)
    assert applied.is_set()
    assert worker.policy_version == 5
    worker.submit(call(1))
    assert delivered.next().policy_version == 5
    worker.stop()
    worker.join()
