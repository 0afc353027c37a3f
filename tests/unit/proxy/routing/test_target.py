"""An endpoint's servers: load, health, and closing when nobody needs them any more."""

from __future__ import annotations

import asyncio

from agl.errors import InferenceError
from agl.proxy.upstream import CallContext


async def test_calls_beyond_the_limit_wait_for_one_to_end(new_server, new_target):
    (replica,) = new_target("t", new_server("a"), max_concurrency=1).replicas
    second_began = asyncio.Event()

    async def second():
        async with replica.call():
            second_began.set()

    async with replica.call():
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        assert replica.calls == 2
        assert not second_began.is_set()
    await waiting
    assert replica.calls == 0


async def test_a_new_rollout_goes_to_the_server_with_the_fewest_calls(new_server, new_target):
    group = new_target("t", new_server("a"), new_server("b"))
    async with group.replicas[0].call():
        assert group.choose("r1", tried=set(), now=0.0) == 1
    async with group.replicas[1].call():
        assert group.choose("r1", tried=set(), now=0.0) == 1
        assert group.choose("r2", tried=set(), now=0.0) == 0


def test_only_what_speaks_against_the_server_makes_it_unwell(new_server, new_target, failure):
    (replica,) = new_target("t", new_server("a")).replicas
    for _ in range(5):
        assert not replica.note(failure(status=429), now=0.0)
        assert not replica.note(InferenceError("bad request", status=400), now=0.0)
    assert [replica.note(failure(), now=0.0) for _ in range(3)] == [False, False, True]
    assert not replica.breaker.is_closed
    replica.note(None, now=0.0)
    assert replica.breaker.is_closed


def test_a_target_is_well_while_one_server_can_be_tried(new_server, new_target, failure):
    group = new_target("t", new_server("a"), new_server("b"))
    for replica in group.replicas:
        for _ in range(3):
            replica.note(failure(), now=100.0)
    assert not group.is_well(100.5)
    assert group.is_well(101.0)
    assert not group.has_other(set())


async def test_a_retired_target_closes_with_its_last_call(new_server, new_target):
    server = new_server("a")
    group = new_target("t", server)
    group.enter()
    retiring = asyncio.create_task(group.retire())
    await asyncio.sleep(0)
    assert server.closed == 0
    group.leave()
    await retiring
    assert server.closed == 1


def test_it_takes_what_its_servers_take(new_server, new_target):
    assert new_target("t", new_server("a")).takes(CallContext())
    assert not new_target("t", new_server("a", able=False)).takes(CallContext())


def test_a_replicas_version_is_the_newest_endpoints_that_has_it(new_server, new_target):
    one, moved, other = new_server("http://a/v1"), new_server("http://a/v1"), new_server("http://b/v1")
    first = new_target("t", one, policy_version=1)
    (replica,) = first.replicas
    assert first.version_now(replica) == 1
    first.successor = new_target("t", moved, other, policy_version=2)
    assert first.version_now(replica) == 2
    first.successor.successor = new_target("t", other, policy_version=3)
    assert first.version_now(replica) == 2
