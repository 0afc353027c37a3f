"""Endpoints are swapped whole while calls go on; what cannot be opened changes nothing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agl.errors import ConfigError, StoreUnavailableError
from agl.proxy.routing.board import Board
from agl.proxy.routing.follow import EndpointFeed
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint

JUDGE = ModelEndpoint(model="judge", urls=("http://a/v1",))


@pytest.fixture
def opened():
    return []


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as store:
        yield store


@pytest.fixture
def open_target(new_server, new_target, opened):
    def open_target(name, endpoint):
        if endpoint.api_key_env is not None:
            raise ConfigError(f"endpoint {name}: api_key_env")
        server = new_server(endpoint.urls[0])
        opened.append(server)
        return new_target(name, server, **endpoint.model_dump(exclude={"kind"}))

    return open_target


@pytest.fixture
async def board(store, open_target, clock):
    board = Board({"own": JUDGE}, feed=EndpointFeed(store), open_target=open_target, clock=clock)
    await board.open()
    yield board
    await board.aclose()


def names(board, model):
    return [target.name for target in board.route(model, agent=None, mode=None)]


async def test_the_stores_endpoints_stand_beside_those_of_the_settings(board, store):
    await store.add_resources({"other": ModelEndpoint(model="critic", urls=("http://b/v1",))})
    await board.follow()
    assert names(board, "judge") == ["own"]
    assert names(board, "critic") == ["other"]


async def test_the_store_wins_where_a_name_is_the_same(board, store, opened):
    await store.add_resources({"own": JUDGE.changed(model="new")})
    await board.follow()
    assert names(board, "judge") == []
    assert names(board, "new") == ["own"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [server.closed for server in opened] == [1, 0]


async def test_an_unchanged_endpoint_keeps_its_connections(board, store, opened):
    await store.add_resources({"own": JUDGE, "other": JUDGE.changed(model="x")})
    await board.follow()
    assert len(opened) == 2
    assert opened[0].closed == 0


async def test_a_call_under_way_keeps_the_replaced_servers_open(board, store, opened):
    (target,) = board.route("judge", agent=None, mode=None)
    target.enter()
    await store.add_resources({"own": JUDGE.changed(withdrawn=True)})
    await board.follow()
    assert names(board, "judge") == []
    await asyncio.sleep(0)
    assert opened[0].closed == 0
    target.leave()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert opened[0].closed == 1


async def test_a_replaced_endpoint_knows_what_came_after_it(board, store):
    (target,) = board.route("judge", agent=None, mode=None)
    assert target.successor is None
    await store.add_resources({"own": JUDGE.changed(policy_version=2)})
    await board.follow()
    (newer,) = board.route("judge", agent=None, mode=None)
    assert target.successor is newer
    await store.add_resources({"own": JUDGE.changed(withdrawn=True)})
    await board.follow()
    assert newer.successor is None


async def test_a_version_that_cannot_be_opened_changes_nothing_and_is_reported_once(board, store, caplog):
    broken = JUDGE.changed(model="x", api_key_env="NOT_SET")
    await store.add_resources({"good": JUDGE.changed(model="y"), "own": broken})
    with caplog.at_level(logging.ERROR):
        await board.follow()
        await board.follow()
    assert names(board, "judge") == ["own"]
    assert names(board, "y") == []
    assert [record.getMessage() for record in caplog.records] == [
        "the model endpoints of resources version 1 are not taken over: endpoint own: api_key_env"
    ]


async def test_a_store_that_is_away_leaves_the_endpoints_as_they_are(open_target, clock, caplog):
    class Away:
        async def get_latest_resources(self):
            raise StoreUnavailableError("gone")

    board = Board({"own": JUDGE}, feed=EndpointFeed(Away()), open_target=open_target, clock=clock)
    await board.open()
    assert names(board, "judge") == ["own"]
    assert "gone" in caplog.text
    await board.aclose()


async def test_a_rested_server_is_probed_and_gets_calls_again(board, opened, clock, failure):
    (target,) = board.route("judge", agent=None, mode=None)
    for _ in range(3):
        target.replicas[0].note(failure(), now=clock.now)
    await board.probe()
    assert opened[0].probes == 0
    clock.now += 1.0
    opened[0].alive = False
    await board.probe()
    assert (opened[0].probes, target.replicas[0].breaker.rests_until) == (1, clock.now + 2.0)
    clock.now += 2.0
    opened[0].alive = True
    await board.probe()
    assert target.replicas[0].breaker.is_closed


async def test_a_server_that_cannot_be_probed_is_left_to_calls(board, opened, clock, failure):
    (target,) = board.route("judge", agent=None, mode=None)
    for _ in range(3):
        target.replicas[0].note(failure(), now=clock.now)
    clock.now += 1.0
    opened[0].alive = None
    await board.probe()
    assert not target.replicas[0].breaker.is_closed
