"""The proxy between a client and a model server of which one or the other talks nonsense: words, never a crash."""

import asyncio

import orjson
import pytest
from answer_chunks import chunks_from_answer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from responses_exchange import function_call, spoiled

from agl.proxy.app import ProxyApp
from agl.proxy.prices import Prices

BASE = "/rollout/r1/attempt/a1/v1"
SETTINGS = {
    "secret": "s",
    "needs_key": False,
    "max_body_bytes": 2**20,
    "upstream_timeout_seconds": 5.0,
    "prices": Prices(),  # shared: reading the map of all models takes longer than a call
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
BODIES = {
    "/chat/completions": {
        "model": "policy",
        "n": 1,
        "max_tokens": 9,
        "temperature": 0.5,
        "logprobs": True,
        "stop": ["x"],
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}, IMAGE]},
            {"role": "assistant", "content": None, "tool_calls": [function_call("c1", "weather", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
    },
    "/completions": {"model": "policy", "prompt": "hello", "n": 1, "logprobs": 1, "stop": "x", "echo": False},
    "/responses": {
        "model": "policy",
        "instructions": "be kind",
        "include": ["message.output_text.logprobs"],
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
        "tool_choice": "auto",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        ],
    },
    "/messages": {
        "model": "policy",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "be kind"}],
        "thinking": {"type": "disabled"},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
        ],
    },
}
COUNTED = {name: value for name, value in BODIES["/messages"].items() if name != "max_tokens"}
paths = st.sampled_from(list(BODIES))
fuzzed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def answer(text=None, calls=()):
    """A whole canonical answer, with all that vLLM says beside it."""
    said = [
        {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": [{"token": "x", "logprob": -0.5}]}
    ]
    message = {"role": "assistant", "content": text, "reasoning_content": "hm", "tool_calls": list(calls)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "choices": [{**choice, "token_ids": [5], "logprobs": {"content": said}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
        "prompt_token_ids": [7, 8, 9],
        "policy_version": 4,
    }


ANSWERS = [answer("sunny"), answer(None, [function_call("c1", "weather", '{"city": "Rome"}')])]


class Streamer:
    """Streams what it is given."""

    model = "policy"

    def __init__(self, chunks):
        self.chunks = chunks

    async def complete_chat(self, request):
        raise AssertionError

    async def stream_chat(self, request):
        for chunk in self.chunks:
            yield chunk


def exchanged(store, upstream, client_of, path, body):
    """What the client sees and what is recorded, with no task left behind."""

    async def exchange():
        app = ProxyApp(store, upstream, **SETTINGS)
        reply = await client_of(app).request("POST", BASE + path, orjson.dumps(body))
        await app.close(grace_seconds=1.0)
        await asyncio.sleep(0)  # a cancelled task ends in the next round of the loop
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return reply

    return asyncio.run(exchange())


@pytest.fixture
def quiet(caplog):
    """Nothing is logged as a failure of the proxy itself."""
    return lambda: [record for record in caplog.records if record.exc_info]


@fuzzed
@given(data=st.data(), path=st.sampled_from([*BODIES, "/messages/count_tokens"]), stream=st.booleans())
def test_a_request_with_a_wrong_field_is_answered_or_refused_in_words(
    store, upstream, client_of, quiet, data, path, stream
):
    body = spoiled(data.draw, {**BODIES.get(path, COUNTED), "stream": stream})
    reply = exchanged(type(store)(), type(upstream)(), client_of, path, body)
    assert reply.status in (200, 400, 404, 422), reply.content
    assert reply.complete
    if reply.status != 200:
        assert reply.json["error"]["message"]
        assert ("type" in reply.json) == path.startswith("/messages")
    assert quiet() == []


@fuzzed
@given(data=st.data(), path=paths, whole=st.sampled_from(ANSWERS))
def test_an_answer_with_a_wrong_field_is_answered_or_a_502_and_recorded_as_what_the_client_saw(
    store, upstream, client_of, quiet, data, path, whole
):
    fake, recorded = type(upstream)(), type(store)()
    fake.answer = spoiled(data.draw, whole)
    reply = exchanged(recorded, fake, client_of, path, BODIES[path])
    assert reply.status in (200, 502), reply.content
    assert isinstance(reply.json, dict)
    (span,) = recorded.spans
    assert span.status.code == ("ok" if reply.status == 200 else "error")
    assert quiet() == []


@fuzzed
@given(data=st.data(), path=paths, whole=st.sampled_from(ANSWERS))
def test_a_stream_with_a_wrong_chunk_is_answered_or_ends_in_an_error_and_is_recorded_as_what_the_client_saw(
    store, client_of, quiet, data, path, whole
):
    chunks = list(chunks_from_answer(whole))
    place = data.draw(st.integers(0, len(chunks) - 1))
    chunks[place] = spoiled(data.draw, chunks[place])
    recorded = type(store)()
    reply = exchanged(recorded, Streamer(chunks), client_of, path, {**BODIES[path], "stream": True})
    assert reply.status in (200, 502), reply.content
    (span,) = recorded.spans
    is_whole = reply.status == 200 and reply.complete
    assert span.status.code == ("ok" if is_whole else "error")
    assert quiet() == []
