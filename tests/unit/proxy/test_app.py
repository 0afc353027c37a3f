import asyncio
import logging
from random import Random

import orjson
import pytest

from agl.errors import InferenceError, NotFoundError, StoreUnavailableError
from agl.proxy.app import ProxyApp
from agl.proxy.prices import Prices
from agl.types import ProxyLLM
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed

CHAT = "/rollout/r1/attempt/a1/v1/chat/completions"
SETTINGS = {
    "secret": "s3cret",
    "needs_key": False,
    "max_body_bytes": 1000,
    "upstream_timeout_seconds": 5.0,
    "prices": Prices(),  # shared: reading the map of all models takes longer than a call
}
HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


async def test_a_call_is_answered_and_recorded_as_the_engine_saw_it(client, store, upstream):
    reply = await client.chat()
    assert reply.status == 200
    assert reply.json["choices"][0]["message"]["content"] == "answer 1.0"
    (span,) = store.spans
    assert (span.name, span.rollout_id, span.attempt_id, span.status.code) == (
        "chat policy",
        "r1",
        "a1",
        "ok",
    )
    assert orjson.loads(span.attributes[key.INPUT_MESSAGES]) == upstream.requests[0]["messages"]
    assert ids_from_packed(span.attributes[key.PROMPT_TOKEN_IDS]) == [7, 8, 9]
    assert ids_from_packed(span.attributes[key.RESPONSE_TOKEN_IDS]) == [10, 2]
    assert floats_from_packed(span.attributes[key.RESPONSE_LOGPROBS]) == [-0.5, -0.25]
    assert span.attributes[key.POLICY_VERSION] == 4
    assert reply.headers["x-request-id"] == span.span_id


async def test_an_answered_call_leaves_no_task_behind(client):
    await client.chat()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_the_agent_did_not_ask_for_is_taken_out_of_the_answer(client):
    answer = (await client.chat()).json
    assert "prompt_token_ids" not in answer
    assert "policy_version" not in answer
    assert "token_ids" not in answer["choices"][0]
    assert answer["choices"][0]["logprobs"] is None


async def test_the_sampling_of_the_resources_overrides_the_agents(client, store, upstream, resources_of):
    forced = {"temperature": 1.0, "max_tokens": 32}
    store.resources["v1"] = resources_of(ProxyLLM(base_url="http://proxy", model="policy", sampling=forced))
    await client.chat({**HELLO, "temperature": 0.0, "max_completion_tokens": 999, "top_p": 0.5})
    (asked,) = upstream.requests
    assert (asked["temperature"], asked["max_tokens"], asked["top_p"]) == (1.0, 32, 0.5)
    assert "max_completion_tokens" not in asked
    assert store.spans[0].attributes[key.TEMPERATURE] == 1.0
    assert store.spans[0].attributes[key.MAX_TOKENS] == 32


async def test_the_answer_waits_until_its_span_is_durable(client, store, upstream):
    store.gate.clear()
    call = asyncio.create_task(client.chat())
    await upstream.asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not call.done()
    store.gate.set()
    assert (await call).status == 200


async def test_all_choices_of_a_call_are_recorded(client, store):
    reply = await client.chat({**HELLO, "n": 2})
    assert len(reply.json["choices"]) == 2
    (span,) = store.spans
    assert ids_from_packed(span.attributes[key.RESPONSE_TOKEN_IDS]) == [10, 2]
    assert ids_from_packed(span.attributes[key.of_choice(key.RESPONSE_TOKEN_IDS, 1)]) == [11, 2]
    assert span.attributes[key.CHOICE_COUNT] == 2


async def test_an_upstream_error_reaches_the_agent_unchanged_and_is_recorded(client, store, upstream):
    body = {
        "error": {"message": "too long", "type": "invalid_request_error", "param": "messages", "code": None}
    }
    upstream.failure = InferenceError("too long", status=400, body=body)
    reply = await client.chat()
    assert (reply.status, reply.json) == (400, body)
    (span,) = store.spans
    assert (span.status.code, span.status.description) == ("error", "too long")
    assert span.attributes[key.ERROR_TYPE] == "400"


async def test_an_upstream_error_in_text_stays_text(client, upstream):
    upstream.failure = InferenceError("bad gateway", status=502, body="<html>bad gateway</html>")
    reply = await client.chat()
    assert (reply.status, reply.content) == (502, b"<html>bad gateway</html>")
    assert reply.headers["content-type"].startswith("text/plain")


async def test_a_fault_in_the_engine_is_a_500_without_traceback_and_is_logged(
    client, store, upstream, caplog
):
    upstream.failure = ZeroDivisionError("secret detail")
    with caplog.at_level(logging.ERROR):
        reply = await client.chat()
    assert reply.status == 500
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert b"secret detail" not in reply.content
    assert b"Traceback" not in reply.content
    assert "ZeroDivisionError" in caplog.text
    assert store.spans[0].attributes[key.ERROR_TYPE] == "ZeroDivisionError"


async def test_an_answer_that_is_no_completion_is_an_error(client, store, upstream):
    upstream.answer = {"choices": []}
    assert (await client.chat()).status == 502
    assert store.spans[0].status.code == "error"


async def test_an_upstream_that_never_answers_is_a_504(store, upstream, client_of):
    app = ProxyApp(store, upstream, **{**SETTINGS, "upstream_timeout_seconds": 0.01})
    upstream.gate.clear()
    assert (await client_of(app).chat()).status == 504
    assert (upstream.cancelled, store.spans[0].attributes[key.ERROR_TYPE]) == (1, "timeout")


async def test_a_client_that_leaves_cancels_the_call_and_that_is_recorded(client, app, store, upstream):
    upstream.gate.clear()
    call = asyncio.create_task(client.chat())
    await upstream.asked.wait()
    client.leave()
    assert (await call).status == 0
    assert upstream.cancelled == 1
    await app.close(grace_seconds=5.0)
    assert store.spans[0].attributes[key.ERROR_TYPE] == "cancelled"


async def test_a_client_that_leaves_while_the_answer_is_recorded_does_not_lose_the_record(
    client, client_of, app, store, upstream
):
    store.gate.clear()
    call = asyncio.create_task(client.chat())
    await upstream.asked.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    client.leave()
    await call
    store.gate.set()
    again = await client_of(app).chat(x_stainless_retry_count="1")
    assert again.json["choices"][0]["message"]["content"] == "answer 1.0"
    assert (len(upstream.requests), len(store.spans)) == (1, 1)


async def test_a_repeat_after_a_lost_answer_is_not_sampled_again(client, client_of, app, store, upstream):
    first = await client.chat(x_stainless_retry_count="0")
    again = await client_of(app).chat(x_stainless_retry_count="1")
    assert again.content == first.content
    assert (len(upstream.requests), len(store.spans)) == (1, 1)


async def test_a_repeat_joins_the_call_in_flight_and_keeps_it_alive(client, client_of, app, store, upstream):
    upstream.gate.clear()
    first = asyncio.create_task(client.chat())
    await upstream.asked.wait()
    repeat = asyncio.create_task(client_of(app).chat(x_stainless_retry_count="1"))
    await asyncio.sleep(0)
    client.leave()
    await first
    upstream.gate.set()
    assert (await repeat).status == 200
    assert (upstream.cancelled, len(upstream.requests), len(store.spans)) == (0, 1, 1)


async def test_two_equal_intended_calls_are_two_records(client, client_of, app, store):
    first, second = await client.chat(), await client_of(app).chat()
    assert first.json["id"] != second.json["id"]
    assert len(store.spans) == 2


async def test_a_repeat_of_a_failed_call_is_asked_anew(client, client_of, app, store, upstream):
    upstream.failure = InferenceError("overloaded", status=503)
    assert (await client.chat()).status == 503
    upstream.failure = None
    assert (await client_of(app).chat(x_stainless_retry_count="1")).status == 200
    assert [span.status.code for span in store.spans] == ["error", "ok"]


async def test_no_answer_goes_out_while_the_store_is_down_and_the_repeat_is_not_sampled_again(
    client, client_of, app, store, upstream
):
    await client.chat()  # the attempt is known from here on
    store.failure = StoreUnavailableError("disk full")
    reply = await client_of(app).chat({**HELLO, "seed": 1})
    assert (reply.status, reply.json["error"]["code"]) == (503, "store_unavailable")
    store.failure = None
    again = await client_of(app).chat({**HELLO, "seed": 1}, x_stainless_retry_count="1")
    assert again.json["choices"][0]["message"]["content"] == "answer 2.0"
    assert (len(upstream.requests), len(store.spans)) == (2, 2)


async def test_a_store_that_cannot_be_read_is_a_503(client, store, upstream):
    store.failure = StoreUnavailableError("closed")
    assert (await client.chat()).status == 503
    assert upstream.requests == []


async def test_a_span_that_the_store_refuses_is_not_answered(client, client_of, app, store):
    await client.chat()
    store.failure = NotFoundError("no attempt a1")
    assert (await client_of(app).chat()).status == 503


async def test_unknown_rollouts_and_attempts_are_404_and_finished_ones_409(
    client, client_of, app, store, attempt_of
):
    unknown = await client.chat(path="/rollout/r9/attempt/a1/v1/chat/completions")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "unknown_rollout")
    unknown = await client_of(app).chat(path="/rollout/r1/attempt/a9/v1/chat/completions")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "unknown_attempt")
    store.attempts["r1"] = [attempt_of("a1", 1, "timeout"), attempt_of("a2", 2)]
    over = await client_of(app).chat()
    assert (over.status, over.headers["x-should-retry"]) == (409, "false")
    assert "superseded by attempt a2" in over.json["error"]["message"]


async def test_the_agents_name_in_the_url_is_recorded(client, store):
    await client.chat(path="/rollout/r1/attempt/a1/agent/writer/v1/chat/completions")
    assert store.spans[0].attributes[key.AGENT] == "writer"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[]", b'{"model": "policy"}', b'"\xed\xa0\x80"'])
async def test_malformed_bodies_are_400_in_openais_shape(client, store, body):
    reply = await client.request("POST", CHAT, body)
    assert reply.status == 400
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert store.spans == []


@pytest.mark.parametrize("headers", [{}, {"content-length": "2000"}])
async def test_a_body_over_the_limit_is_413(client, upstream, headers):
    reply = await client.request("POST", CHAT, [b"x" * 600, b"x" * 600], headers)
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")
    assert upstream.requests == []


async def test_a_body_in_parts_is_one_request(client, upstream):
    body = orjson.dumps(HELLO)
    assert (await client.request("POST", CHAT, [body[:10], body[10:], b""])).status == 200
    assert upstream.requests[0]["messages"] == HELLO["messages"]


async def test_a_client_that_leaves_before_its_body_is_complete_is_let_go(client, upstream):
    client.leave()
    assert (await client.request("POST", CHAT, [])).status == 0
    assert upstream.requests == []


async def test_a_body_that_never_ends_does_not_hold_up_the_stop(client, app, upstream):
    sending = asyncio.create_task(client.request("POST", CHAT, [b"{", None]))
    await asyncio.sleep(0)
    await app.close(grace_seconds=0.0)
    reply = await sending
    assert (reply.status, reply.json["error"]["code"]) == (503, "stopping")
    assert upstream.requests == []


async def test_headers_over_the_limit_are_431(client):
    assert (await client.request("GET", "/health", headers={"x": "y" * 70_000})).status == 431


async def test_with_a_token_only_its_bearer_gets_in_and_it_is_never_recorded(
    store, upstream, client_of, caplog
):
    app = ProxyApp(store, upstream, **{**SETTINGS, "secret": "t0ken", "needs_key": True})
    with caplog.at_level(logging.DEBUG):
        for wrong in ({}, {"authorization": "Bearer t0keN"}, {"authorization": "t0ken"}):
            refused = await client_of(app).chat(**wrong)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await client_of(app).chat(authorization="Bearer t0ken")).status == 200
    assert (await client_of(app).request("GET", "/health")).status == 200
    assert "t0ken" not in store.spans[0].model_dump_json()
    assert "t0ken" not in caplog.text


async def test_models_lists_what_the_attempt_may_ask_for(client, client_of, app):
    reply = await client.request("GET", "/rollout/r1/attempt/a1/v1/models")
    assert [model["id"] for model in reply.json["data"]] == ["policy"]
    assert (await client_of(app).request("GET", "/rollout/r9/attempt/a1/v1/models")).status == 404


async def test_closing_cancels_what_does_not_end_and_refuses_what_comes(
    client, client_of, app, store, upstream
):
    upstream.gate.clear()
    call = asyncio.create_task(client.chat())
    await upstream.asked.wait()
    await app.close(grace_seconds=0.0)
    assert (await call).status == 503
    assert store.spans[0].attributes[key.ERROR_TYPE] == "cancelled"
    assert (await client_of(app).chat()).status == 503
    assert (await client_of(app).request("GET", "/health")).json == {"status": "stopping"}


async def test_closing_lets_a_call_end_in_its_grace(client, app, store, upstream):
    upstream.gate.clear()
    call = asyncio.create_task(client.chat())
    await upstream.asked.wait()
    closing = asyncio.create_task(app.close(grace_seconds=5.0))
    await asyncio.sleep(0)
    upstream.gate.set()
    await closing
    assert (await call).status == 200


async def test_calls_of_a_seeded_rollout_get_seeds_that_follow_from_it(client, store, upstream):
    store.rollouts["r1"] = store.rollouts["r1"].model_copy(update={"metadata": {"seed": 11}})
    for _ in range(3):
        await client.chat()
    seeds = [asked["seed"] for asked in upstream.requests]
    assert seeds == [Random(f"11/{number}").getrandbits(31) for number in (1, 2, 3)]


async def test_a_seed_of_the_agents_own_is_kept(client, store, upstream):
    store.rollouts["r1"] = store.rollouts["r1"].model_copy(update={"metadata": {"seed": 11}})
    await client.chat({**HELLO, "seed": 5})
    assert upstream.requests[0]["seed"] == 5


async def test_without_a_seeded_rollout_no_seed_is_sent(client, upstream):
    await client.chat()
    assert "seed" not in upstream.requests[0]


async def test_an_agent_that_names_another_model_gets_the_policy(client, store, upstream):
    await client.chat({**HELLO, "model": "gpt-4o"})
    assert upstream.requests[0]["model"] == "policy"
