"""Waits without polling."""

from __future__ import annotations

from agl.store.waiting import Arrivals, Finishes


async def test_each_arrival_wakes_one_in_the_order_of_joining() -> None:
    arrivals = Arrivals()
    waiting = [arrivals.join(None) for _ in range(3)]
    arrivals.announce([None, "run"])
    assert [one.done() for one in waiting] == [True, True, False]


async def test_an_arrival_of_a_run_prefers_those_who_wait_for_the_run() -> None:
    arrivals = Arrivals()
    anyone, mine, theirs = arrivals.join(None), arrivals.join("mine"), arrivals.join("theirs")
    arrivals.announce(["mine"])
    assert [one.done() for one in (anyone, mine, theirs)] == [False, True, False]
    arrivals.announce(["mine"])
    assert [one.done() for one in (anyone, mine, theirs)] == [True, True, False]


async def test_a_wake_up_that_is_not_used_is_passed_on() -> None:
    arrivals = Arrivals()
    first, second, third = (arrivals.join(None) for _ in range(3))
    second.cancel()
    arrivals.announce([None])
    arrivals.leave(first, None)
    assert third.done()
    gone = arrivals.join("run")
    arrivals.leave(gone, "run")
    arrivals.announce(["run"])
    assert not gone.done()


async def test_closing_wakes_everybody_now_and_later() -> None:
    arrivals = Arrivals()
    waiting = [arrivals.join(run_id) for run_id in (None, "a", "a", "b")]
    arrivals.close()
    assert all(one.done() for one in (*waiting, arrivals.join("a")))


async def test_a_wait_ends_when_all_its_rollouts_have() -> None:
    finishes = Finishes()
    both, one = finishes.join(["a", "b", "a"]), finishes.join(["b"])
    finishes.announce(["b", "other"])
    assert (both.done.done(), one.done.done(), both.missing) == (False, True, {"a"})
    finishes.announce(["a"])
    assert both.done.done()
    assert finishes.join([]).done.done()


async def test_a_wait_that_was_left_is_forgotten() -> None:
    finishes = Finishes()
    wait = finishes.join(["a"])
    finishes.leave(wait)
    finishes.announce(["a"])
    assert not wait.done.done()


async def test_closing_ends_all_waits_now_and_later() -> None:
    finishes = Finishes()
    waits = [finishes.join(["a"]), finishes.join(["b"])]
    finishes.close()
    assert all(wait.done.done() for wait in (*waits, finishes.join(["c"])))


async def test_who_waits_for_what_can_be_asked() -> None:
    arrivals, finishes = Arrivals(), Finishes()
    for run_id in (None, "r", "r"):
        arrivals.join(run_id)
    wait = finishes.join(["ro-1", "ro-2"])
    assert arrivals.waiting() == {None: 1, "r": 2}
    assert sorted(finishes.waiting()) == ["ro-1", "ro-2"]
    arrivals.announce(["r"])
    finishes.announce(["ro-2"])
    assert arrivals.waiting() == {None: 1, "r": 1}
    assert finishes.waiting() == ["ro-1"]
    finishes.leave(wait)
    assert finishes.waiting() == []


async def test_a_wait_for_some_ends_with_the_last_of_them() -> None:
    finishes = Finishes()
    wait = finishes.join(["a", "b", "c"], at_least=2)
    finishes.announce(["a"])
    assert not wait.is_over
    assert not wait.done.done()
    finishes.announce(["c"])
    assert wait.is_over
    assert wait.done.done()
    assert finishes.join(["x"], at_least=0).done.done()
    assert not finishes.join(["x"], at_least=5).done.done()
