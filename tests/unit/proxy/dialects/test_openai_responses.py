import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib._parsing._responses import type_to_text_format_param
from pydantic import BaseModel
from responses_exchange import (
    HELLO,
    WEATHER,
    ScriptedUpstream,
    canonical,
    checked_response,
    chunked,
    events_in,
    function_call,
    spoiled,
    streamed,
)

from agl.errors import InferenceError
from agl.proxy.dialects.base import NativeDialect
from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.dialects.responses.memory import ResponseMemory
from agl.proxy.refusal import CallRefusedError

DATA = Path(__file__).parents[3] / "data"
AGENTS_SDK = json.loads((DATA / "openai_agents_requests.json").read_text())["requests"]
CALLS = [function_call("call_1", "weather", '{"city": "Zürich"}'), function_call("call_2", "weather", "{}")]


class City(BaseModel):
    name: str
    people: int


def test_it_is_a_native_dialect():
    dialect: NativeDialect = OpenAIResponses()
    assert dialect.name == "openai.responses"


def test_a_body_is_read_once_and_kept():
    request = OpenAIResponses().request(orjson.dumps({**HELLO, "stream": True}))
    assert request.stream
    assert request.native == {**HELLO, "stream": True}
    assert "stream" not in request.chat


@pytest.mark.parametrize("body", [b"", b"nan", b'{"model": "\\ud800"}', b"[" * 5000, b"\x80", b"[]", b'"a"'])
def test_what_is_not_a_json_object_is_refused(body):
    with pytest.raises(CallRefusedError):
        OpenAIResponses().request(body)


def test_an_error_of_the_upstream_stays_as_it_is():
    body = {"error": {"message": "no", "type": "t", "param": "p", "code": "c"}, "more": 1}
    assert orjson.loads(OpenAIResponses().error_body("x", status=400, code="y", body=body)) == body


def test_an_error_has_openai_s_shape():
    worded = orjson.loads(OpenAIResponses().error_body("over", status=429, code="budget", body="text"))
    assert worded == {
        "error": {"message": "over", "type": "rate_limit_error", "param": None, "code": "budget"}
    }


def test_openai_s_client_gets_its_text():
    upstream = ScriptedUpstream(canonical({"content": " Hi\n"}))
    response = upstream.client().responses.create(model="policy", input="hello", instructions="Be brief.")
    assert response.output_text == " Hi\n"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (11, 7)
    assert upstream.chats[0]["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_openai_s_asynchronous_client_gets_its_text():
    client = ScriptedUpstream(canonical({"content": " Hi\n"})).async_client()
    assert (await client.responses.create(model="policy", input="hello")).output_text == " Hi\n"


def test_openai_s_client_calls_tools_in_parallel_and_goes_on():
    first = canonical({"content": "I look. ", "tool_calls": CALLS}, finish_reason="tool_calls")
    upstream = ScriptedUpstream(first, canonical({"content": "18"}))
    client = upstream.client()
    tools: Any = [WEATHER]
    response = client.responses.create(model="policy", input="weather?", tools=tools)
    items: Any = [{"role": "user", "content": "weather?"}, *response.output]
    for call in response.output[1:]:
        assert call.type == "function_call"
        items.append(
            {"type": "function_call_output", "call_id": call.call_id, "output": f"18 for {call.arguments}"}
        )
    assert client.responses.create(model="policy", input=items, tools=tools).output_text == "18"
    assert upstream.chats[1]["messages"] == [
        *upstream.chats[0]["messages"],
        {"role": "assistant", "content": "I look. ", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_1", "content": '18 for {"city": "Zürich"}'},
        {"role": "tool", "tool_call_id": "call_2", "content": "18 for {}"},
    ]


def test_openai_s_client_parses_structured_output():
    upstream = ScriptedUpstream(canonical({"content": '{"name":"Bern","people":134794}'}))
    parsed = upstream.client().responses.parse(model="policy", input="capital?", text_format=City)
    assert parsed.output_parsed == City(name="Bern", people=134794)
    asked = upstream.chats[0]["response_format"]["json_schema"]
    expected = {**type_to_text_format_param(City)}
    del expected["type"]
    assert asked == expected


def test_openai_s_client_streams():
    message = {"content": "I look.", "tool_calls": CALLS[:1]}
    answer = canonical(message, finish_reason="tool_calls")
    deltas = [{"content": "I "}, {"content": "look."}, {"tool_calls": [{"index": 0, **CALLS[0]}]}]
    client = ScriptedUpstream(answer, chunks=chunked(answer, deltas)).client()
    with client.responses.stream(model="policy", input="hello") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert [item.type for item in final.output] == ["message", "function_call"]
    assert checked_response(final.to_dict()).output_text == "I look."


async def test_openai_s_asynchronous_client_streams():
    answer = canonical({"content": "Hi there"})
    chunks = chunked(answer, [{"content": "Hi"}, {"content": " there"}])
    client = ScriptedUpstream(answer, chunks=chunks).async_client()
    async with client.responses.stream(model="policy", input="hello") as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert (deltas, final.output_text) == (["Hi", " there"], "Hi there")


@pytest.mark.parametrize("run", AGENTS_SDK)
def test_every_request_of_the_agents_sdk_is_answered(run):
    dialect = OpenAIResponses()
    for native in AGENTS_SDK[run]:
        request = dialect.request(orjson.dumps(native))
        worded = orjson.loads(dialect.answer(request, canonical({"content": "ok"})))
        assert checked_response(worded).output_text == "ok"
        assert request.stream is native.get("stream", False)


ALL = {
    "content": "c",
    "reasoning_content": "r",
    "refusal": "n",
    "annotations": [{"type": "url_citation", "url_citation": {"url": "x"}}],
    "tool_calls": CALLS,
}
LOGPROB = {"token": "c", "bytes": [99], "logprob": -1.0, "top_logprobs": [{"token": "c", "logprob": -1.0}]}
ANSWER = canonical(ALL, finish_reason="tool_calls", logprobs=[LOGPROB])
FULL = {
    **AGENTS_SDK["every_setting"][0],
    "input": AGENTS_SDK["tools"][1]["input"] + AGENTS_SDK["conversation_of_turns"][1]["input"],
    "text": AGENTS_SDK["structured"][0]["text"],
    "stream": True,
}
CHUNKS = chunked(ANSWER, [{**ALL, "tool_calls": [{"index": i, **call} for i, call in enumerate(CALLS)]}])


@given(st.data())
def test_whatever_a_client_says_is_read_or_refused(data):
    dialect, memory = OpenAIResponses(), ResponseMemory()
    try:
        request = memory.resolved(dialect.request(orjson.dumps(spoiled(data.draw, FULL))))
    except CallRefusedError:
        return
    dialect.answer(request, ANSWER)
    memory.remember(request, ANSWER)
    writer = dialect.events(request)
    assert events_in(b"".join([*map(writer.chunk, CHUNKS), writer.end(ANSWER)]))


@given(st.data())
def test_whatever_a_provider_says_is_read_or_its_error(data):
    dialect = OpenAIResponses()
    request = dialect.request(orjson.dumps(FULL))
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    native = orjson.loads(dialect.answer(request, ANSWER))
    with suppress(InferenceError):
        answer = dialect.chat_answer(spoiled(data.draw, {**native, "output": [*native["output"], search]}))
        dialect.answer(request, answer)
        dialect.events(request).end(answer)
    reader = dialect.reader()
    with suppress(InferenceError):
        for event in spoiled(data.draw, events_in(streamed(FULL, ANSWER, CHUNKS))):
            if isinstance(event, dict):
                orjson.dumps(reader.event(str(event.get("type")), event))
