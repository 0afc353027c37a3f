"""Failures in a row rest a server, each time for longer; one success ends it."""

from __future__ import annotations

import pytest

from agl.proxy.routing.health import Breaker


def test_the_third_failure_in_a_row_opens_and_a_success_between_begins_anew():
    breaker = Breaker(rng=lambda: 0.0)
    assert [breaker.failed(0.0), breaker.failed(0.0)] == [False, False]
    breaker.succeeded()
    assert [breaker.failed(0.0), breaker.failed(0.0), breaker.failed(0.0)] == [False, False, True]
    assert not breaker.is_closed


def test_rests_double_up_to_half_a_minute():
    breaker = Breaker(rng=lambda: 0.0)
    rests = []
    for _ in range(9):
        breaker.failed(100.0)
        rests.append(None if breaker.rests_until is None else breaker.rests_until - 100.0)
    assert rests == [None, None, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_chance_shortens_a_rest_by_up_to_a_half():
    breaker = Breaker(rng=lambda: 1.0)
    for _ in range(3):
        breaker.failed(10.0)
    assert breaker.rests_until == 10.5


def test_only_the_failure_that_opens_is_told():
    breaker = Breaker(rng=lambda: 0.0)
    assert [breaker.failed(0.0) for _ in range(5)] == [False, False, True, False, False]


@pytest.mark.parametrize(("now", "due"), [(100.9, False), (101.0, True)])
def test_a_sick_server_is_due_after_its_rest(now, due):
    breaker = Breaker(rng=lambda: 0.0)
    assert not breaker.is_due(now)
    for _ in range(3):
        breaker.failed(100.0)
    assert breaker.is_due(now) is due
    breaker.succeeded()
    assert breaker.is_closed
    assert not breaker.is_due(now)
