"""The router answers from the first server that can, and says who it was."""

from __future__ import annotations

import asyncio

import pytest

from agl.errors import InferenceError
from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.refusal import CallRefusedError
from agl.proxy.routing import Router
from agl.proxy.upstream import UPSTREAM, CallContext, RoutedUpstream
from agl.types import ModelEndpoint

CHAT = {"model": "m", "messages": []}
ROLLOUT = CallContext(rollout_id="r1")


class Engine:
    """An engine whose weights are swapped while it answers, when ``swaps`` is set."""

    model = "policy"
    policy_version = 3
    swaps = False

    async def complete_chat(self, request):
        self.policy_version += self.swaps
        return {"choices": [], "by": "engine"}

    async def stream_chat(self, request):
        yield {"choices": [1]}
        self.policy_version += self.swaps
        yield {"choices": []}


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def servers(new_server):
    return {name: new_server(name) for name in ("http://a/v1", "http://b/v1", "http://c/v1")}


@pytest.fixture
async def router(engine, servers, new_target, clock, monkeypatch):
    endpoints = {
        "first": ModelEndpoint(model="m", urls=("http://a/v1", "http://b/v1"), policy_version=7),
        "spare": ModelEndpoint(model="m", urls=("http://c/v1",), priority=-1),
    }

    def open_target(name, endpoint):
        return new_target(
            name, *(servers[url] for url in endpoint.urls), **endpoint.model_dump(exclude={"kind"})
        )

    router = Router(
        engine,
        endpoints=endpoints,
        max_retries=1,
        clock=clock,
        rng=lambda: 1.0,
        sleep=clock.sleep,
        opener=open_target,
    )
    async with router:
        yield router


def asked(servers):
    return [len(server.asked) for server in servers.values()]


def test_it_is_a_routed_upstream(router):
    assert isinstance(router, RoutedUpstream)
    assert router.models == ["policy", "m"]
    assert router.model == "policy"
    assert router.model_of_call("m", agent=None, mode=None) == "m"
    assert router.model_of_call("policy", agent=None, mode=None) is None


async def test_what_no_endpoint_takes_is_the_engines(router):
    answer = await router.complete_chat({"model": "policy"}, context=ROLLOUT)
    assert answer == {"choices": [], "by": "engine", "policy_version": 3}


async def test_a_swap_while_the_engine_answers_is_stamped_at_both_ends(router, engine):
    engine.swaps = True
    answer = await router.complete_chat({"model": "policy"})
    chunks = [chunk async for chunk in router.stream_chat({"model": "policy"})]
    assert (answer["policy_version"], answer["policy_version_end"]) == (3, 4)
    assert [chunk["policy_version"] for chunk in chunks] == [4, 5]


async def test_calls_of_one_rollout_stay_with_one_server_and_rollouts_are_balanced(router, servers):
    for _ in range(4):
        await router.complete_chat(CHAT, context=ROLLOUT)
    assert sorted(asked(servers)) == [0, 0, 4]
    held = max(servers.values(), key=lambda server: len(server.asked))
    held.gate.clear()
    held.was_asked.clear()
    slow = asyncio.create_task(router.complete_chat(CHAT, context=ROLLOUT))
    await held.was_asked.wait()
    for number in range(5):
        await router.complete_chat(CHAT, context=CallContext(rollout_id=f"new{number}"))
    held.gate.set()
    await slow
    assert sorted(asked(servers)) == [0, 5, 5]


async def test_an_answer_says_who_gave_it_and_with_which_weights(router):
    answer = await router.complete_chat(CHAT, context=ROLLOUT)
    chunks = [chunk async for chunk in router.stream_chat(CHAT, context=ROLLOUT)]
    assert (answer[UPSTREAM], answer["policy_version"]) == ("first", 7)
    assert [chunk.get(UPSTREAM) for chunk in chunks] == ["first", None, None]
    assert chunks[0]["policy_version"] == 7


async def test_weights_that_change_behind_an_endpoint_during_a_call_are_stamped_at_both_ends(
    new_server, new_target, clock
):
    server = new_server("http://a/v1")
    old, new = (new_target("own", server, policy_version=version) for version in (7, 8))
    endpoints = {"own": old.endpoint}
    async with Router(None, endpoints=endpoints, clock=clock, opener=lambda name, endpoint: old) as router:
        server.gate.clear()
        call = asyncio.create_task(router.complete_chat(CHAT, context=ROLLOUT))
        await server.was_asked.wait()
        old.successor = new
        server.gate.set()
        answer = await call
        old.successor = None
        stream = router.stream_chat(CHAT, context=ROLLOUT)
        chunks = [await anext(stream)]
        old.successor = new
        chunks += [chunk async for chunk in stream]
    assert (answer["policy_version"], answer["policy_version_end"]) == (7, 8)
    assert [chunk.get("policy_version") for chunk in chunks] == [7, 8, 8]


async def test_a_failed_replica_is_replaced_at_once_and_then_the_spare(router, servers, clock, failure):
    for server in servers.values():
        server.failures = [failure()]
    servers["http://c/v1"].failures = []
    answer = await router.complete_chat(CHAT, context=ROLLOUT)
    assert answer[UPSTREAM] == "spare"
    assert "policy_version" not in answer
    assert asked(servers) == [1, 1, 1]
    assert clock.pauses == []


async def test_when_all_fail_the_client_sees_the_last_failure(router, servers, clock, failure):
    for server in servers.values():
        server.failures = [failure(status=429) for _ in range(9)]
    with pytest.raises(InferenceError, match="down") as caught:
        await router.complete_chat(CHAT, context=ROLLOUT)
    assert caught.value.status == 429
    assert asked(servers) == [1, 1, 2]
    assert clock.pauses == [0.5]


async def test_a_stream_is_tried_elsewhere_before_its_first_chunk(router, servers, failure):
    servers["http://a/v1"].failures = [failure()]
    servers["http://b/v1"].failures = [failure()]
    chunks = [chunk async for chunk in router.stream_chat(CHAT, context=ROLLOUT)]
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == [
        f"http://c/v1{n}" for n in range(3)
    ]


async def test_a_stream_is_never_tried_again_after_its_first_chunk(router, servers):
    for server in servers.values():
        server.breaks_after = 1
    chunks = router.stream_chat(CHAT, context=ROLLOUT)
    await anext(chunks)
    with pytest.raises(InferenceError):
        await anext(chunks)
    assert sum(asked(servers)) == 1


async def test_closing_a_stream_gives_the_servers_up(router, servers):
    chunks = router.stream_chat(CHAT, context=ROLLOUT)
    await anext(chunks)
    await chunks.aclose()
    assert sum(server.streams_closed for server in servers.values()) == 1
    assert await router.drain(seconds=0.0)


async def test_a_server_that_keeps_failing_gets_no_more_calls(router, servers, failure):
    servers["http://a/v1"].failures = [failure() for _ in range(99)]
    for number in range(40):
        await router.complete_chat(CHAT, context=CallContext(rollout_id=f"r{number}"))
    assert len(servers["http://a/v1"].asked) == 3


async def test_a_request_that_no_server_survives_takes_none_of_them_from_the_others(
    router, servers, failure, caplog
):
    poison = {"model": "m", "messages": ["poison"]}
    for server, times in zip(servers.values(), (2, 2, 4), strict=True):
        server.failures = [failure() for _ in range(times)]
    for _ in range(2):
        with pytest.raises(InferenceError):
            await router.complete_chat(poison, context=ROLLOUT)
    assert asked(servers) == [2, 2, 4]
    assert not any(server.failures for server in servers.values())
    assert "gets no calls" not in caplog.text


async def test_new_calls_wait_while_the_router_is_paused(router, servers):
    async with router.paused():
        waiting = asyncio.create_task(router.complete_chat(CHAT, context=ROLLOUT))
        streaming = asyncio.create_task(anext(router.stream_chat(CHAT, context=ROLLOUT)))
        await asyncio.sleep(0)
        assert asked(servers) == [0, 0, 0]
    await waiting
    await streaming
    assert sum(asked(servers)) == 2


async def test_a_paused_call_is_answered_by_its_deadline(router, clock):
    router.pause()
    with pytest.raises(InferenceError) as caught:
        await router.complete_chat(CHAT, context=CallContext(deadline=clock.now))
    assert caught.value.status == 503
    router.resume()


async def test_a_call_that_no_server_of_the_route_speaks_is_refused_with_the_cause(router, servers):
    for server in servers.values():
        server.able = False
    with pytest.raises(CallRefusedError, match="of the kind openai") as caught:
        await router.complete_chat(CHAT, context=CallContext(dialect=OpenAIChat()))
    assert caught.value.status == 400
    own = CallRefusedError("server tools", status=400, code="unsupported_value")
    for model in ("m", "policy"):
        with pytest.raises(CallRefusedError, match="server tools"):
            await router.complete_chat({"model": model}, context=CallContext(native_only=own))


async def test_embeddings_go_to_the_endpoint_of_their_model(router, servers, failure):
    servers["http://a/v1"].failures = [failure()]
    answer = await router.embed({"model": "m", "input": "x"}, context=ROLLOUT)
    assert answer == {"data": [], "by": "http://b/v1", UPSTREAM: "first"}
    with pytest.raises(CallRefusedError, match="no endpoint") as caught:
        await router.embed({"model": "policy", "input": "x"})
    assert caught.value.status == 404


async def test_without_an_engine_an_unknown_model_is_a_404_that_lists_the_known():
    endpoints = {"j": ModelEndpoint(model="judge", urls=("http://127.0.0.1:9/v1",))}
    async with Router(None, endpoints=endpoints) as router:
        assert router.model == ""
        with pytest.raises(CallRefusedError, match="'gpt'; the models it has: judge") as caught:
            await router.complete_chat({"model": "gpt"})
    assert caught.value.status == 404


async def test_tokens_are_counted_where_the_call_would_go(router, servers, engine, failure):
    assert await router.count_tokens(CHAT, context=ROLLOUT) is None
    assert await router.count_tokens({"model": "policy"}, context=ROLLOUT) is None
    num_counted = iter((5, 6))

    async def count(request, context=None):
        if servers["http://a/v1"].failures:
            raise servers["http://a/v1"].failures.pop()
        return next(num_counted)

    for counter in (engine, *servers.values()):
        counter.count_tokens = count
    servers["http://a/v1"].failures = [failure()]
    assert await router.count_tokens(CHAT, context=ROLLOUT) == 5
    assert await router.count_tokens({"model": "policy"}, context=ROLLOUT) == 6
    assert asked(servers) == [0, 0, 0]
