"""How long a call pauses and when it is given up."""

from __future__ import annotations

import pytest
from scripted_store import Time

from agl.store.client.retry import Outage


def outage(seconds: float, time: Time, jitter: float = 1.0) -> Outage:
    return Outage(seconds, clock=time.clock, rng=lambda: jitter)


def test_pauses_double_up_to_a_limit(time: Time) -> None:
    waits = outage(1000.0, time)
    assert [waits.pause() for _ in range(8)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


@pytest.mark.parametrize("jitter", [0.0, 0.25])
def test_jitter_is_full(time: Time, jitter: float) -> None:
    waits = outage(1000.0, time, jitter)
    assert [waits.pause() for _ in range(3)] == pytest.approx([0.1 * jitter, 0.2 * jitter, 0.4 * jitter])


def test_a_call_is_given_up_when_its_time_is_over(time: Time) -> None:
    waits = outage(1.0, time)
    assert waits.pause() == pytest.approx(0.1)
    time.now = 0.7
    assert waits.pause() == pytest.approx(0.2)
    assert waits.left() == pytest.approx(0.3)
    assert waits.pause() is None  # 0.4 s would be too late
    assert (waits.failures, waits.elapsed) == (3, 0.7)


def test_no_seconds_are_no_retries(time: Time) -> None:
    assert outage(0.0, time).pause() is None


def test_the_servers_wish_is_followed_while_there_is_time(time: Time) -> None:
    waits = outage(10.0, time)
    assert waits.pause(at_least=7.0) == 7.0
    assert waits.pause(at_least=0.01) == pytest.approx(0.2)
    assert waits.pause(at_least=10.0) is None


def test_many_failures_do_not_overflow(time: Time) -> None:
    waits = outage(1e9, time)
    assert [waits.pause() for _ in range(5000)][-1] == 5.0
