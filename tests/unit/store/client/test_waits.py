"""Long waits made of polls."""

from __future__ import annotations

import math

import pytest
from scripted_store import ScriptedStore, Time

from agl.http.connections import Connections
from agl.http.parsing import FastParser
from agl.store import wire
from agl.store.client.lane import Lane
from agl.store.client.waits import EARLY_PAUSE_SECONDS, Wait


async def unused(lane: Lane, body: bytes) -> bytes:
    raise AssertionError


@pytest.fixture
async def lane(server: ScriptedStore, time: Time) -> Lane:
    return Lane(Connections(server.dial, FastParser), post=unused, sleep=time.sleep)


@pytest.mark.parametrize("seconds", [None, math.inf, 3600.0])
async def test_a_poll_is_no_longer_than_a_server_holds_one(lane: Lane, seconds: float | None) -> None:
    assert Wait(lane, seconds).next_poll() == wire.MAX_WAIT_SECONDS


async def test_a_short_wait_is_one_poll(lane: Lane) -> None:
    wait = Wait(lane, 0.0)
    assert wait.next_poll() == 0.0
    assert not await wait.goes_on()


async def test_the_last_poll_takes_what_is_left(lane: Lane) -> None:
    assert 4.0 < Wait(lane, 5.0).next_poll() <= 5.0


async def test_a_server_that_answers_too_early_is_not_asked_at_once(lane: Lane, time: Time) -> None:
    wait = Wait(lane, None)
    wait.next_poll()
    assert await wait.goes_on()
    assert time.naps == [EARLY_PAUSE_SECONDS]


async def test_a_wait_ends_with_its_lane(lane: Lane) -> None:
    wait = Wait(lane, None)
    wait.next_poll()
    lane.drop()
    assert not await wait.goes_on()
