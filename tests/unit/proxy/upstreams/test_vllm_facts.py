"""What a real vLLM answered, by way of the servers that the proxy has for it: nothing of it is lost or changed."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.record import Call, Ended, answered_span
from agl.proxy.routes import Address
from agl.proxy.streams import StreamedAnswer
from agl.proxy.upstream import NATIVE, CallContext
from agl.proxy.upstreams.anthropic import AnthropicServer
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.native import RESPONSES, NativeServer
from agl.proxy.upstreams.openai import OpenAIServer
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed

FACTS = Path(__file__).parents[3] / "data" / "vllm"
ADDRESS = Address(rollout_id="r1", attempt_id="a1", agent=None, endpoint="chat")
OWN = {key.RESPONSE_ID, key.LATENCY_SECONDS}
"""What two calls do not share."""


def fact(name):
    return orjson.loads((FACTS / f"{name}.json").read_bytes())


def answer_to(told, network):
    if "events" in told:
        return network.stream(told["events"].encode(), status=told["status"])
    return httpx.Response(told["status"], json=told["body"])


@pytest.fixture
def openai_server(http):
    return OpenAIServer(http, model=None, token_ids=None, logprobs=None)


async def recorded(server, told, network, context):
    """The attributes of the call's span."""
    network.answers = [answer_to(told, network)]
    asked = told["request"]["body"]
    if asked.get("stream"):
        whole = StreamedAnswer()
        async for chunk in server.stream(asked, context):
            whole.add(chunk)
        answer = whole.answer()
    else:
        answer = await server.complete(asked, context)
        answer.pop(NATIVE, None)
    request = {"temperature": 1.0, "messages": [], **asked}
    call = Call(
        address=ADDRESS,
        request=request,
        span_id="0" * 16,
        traceparent=None,
        started_ns=0,
        policy_version=None,
    )
    return answered_span(call, answer, Ended(ended_ns=1)).attributes


@pytest.mark.parametrize("name", ["chat", "chat_n2", "chat_schema", "chat_stop", "completion"])
async def test_a_stream_leaves_the_record_of_the_plain_answer(name, openai_server, model_server):
    plain, stream = fact(name), fact(f"{name}_stream")
    context = CallContext(dialect=OpenAIChat(), native=plain["request"]["body"])
    record = await recorded(openai_server, plain, model_server, context)
    streamed = await recorded(openai_server, stream, model_server, context)
    assert {n: v for n, v in streamed.items() if n not in OWN} == {
        n: v for n, v in record.items() if n not in OWN
    }
    choices = plain["body"]["choices"]
    prompt = plain["body"].get("prompt_token_ids") or choices[0]["prompt_token_ids"]
    assert ids_from_packed(record[key.PROMPT_TOKEN_IDS]) == prompt
    for index, choice in enumerate(choices):
        ids = ids_from_packed(record[key.of_choice(key.RESPONSE_TOKEN_IDS, index)])
        logprobs = floats_from_packed(record[key.of_choice(key.RESPONSE_LOGPROBS, index)])
        assert ids == choice["token_ids"]
        assert len(logprobs) == len(ids)
    assert not [name for name in record if name.startswith(key.MISSING_IDS_CAUSE)]


async def test_a_tool_call_is_the_same_but_for_the_spaces_of_its_arguments(openai_server, model_server):
    calls = []
    for name in ("chat_tool_required", "chat_tool_required_stream"):
        told = fact(name)
        record = await recorded(
            openai_server, told, model_server, CallContext(native=told["request"]["body"])
        )
        (message,) = orjson.loads(record[key.OUTPUT_MESSAGES])
        calls.append(
            [(c["function"]["name"], orjson.loads(c["function"]["arguments"])) for c in message["tool_calls"]]
        )
        assert record[key.FINISH_REASONS] == ["tool_calls"]
    assert calls[0] == calls[1] != []


def refused_chats():
    for path in sorted(FACTS.glob("error_*.json")):
        told = fact(path.stem)
        request = told["request"]
        if request["path"] == "/v1/chat/completions" and "body" in request and "body" in told:
            yield pytest.param(told, id=path.stem)


@pytest.mark.parametrize("told", list(refused_chats()))
async def test_a_refusal_keeps_its_status_and_body(told, openai_server, model_server):
    model_server.answers = [answer_to(told, model_server)]
    with pytest.raises(UpstreamError) as caught:
        await openai_server.complete(told["request"]["body"], CallContext())
    assert (caught.value.status, caught.value.body) == (told["status"], told["body"])


def events_of(told):
    lines = told["events"].splitlines()
    return [orjson.loads(line[6:]) for line in lines if line.startswith("data: {")]


async def test_its_messages_are_read_as_anthropics_plain_and_streamed(http, model_server):
    server = AnthropicServer(http, model=None)
    plain, stream = fact("messages"), fact("messages_stream")
    deltas = [event["delta"] for event in events_of(stream) if event["type"] == "content_block_delta"]
    texts = (
        "".join(block.get("text", "") for block in plain["body"]["content"]),
        "".join(delta.get("text", "") for delta in deltas),
    )
    for told, text in zip((plain, stream), texts, strict=True):
        for dialect in (AnthropicMessages(), OpenAIChat()):
            native = told["request"]["body"] if isinstance(dialect, AnthropicMessages) else {}
            record = await recorded(server, told, model_server, CallContext(dialect=dialect, native=native))
            assert orjson.loads(record[key.OUTPUT_MESSAGES])[0]["content"] == text != ""
            assert record[key.INPUT_TOKENS] == plain["body"]["usage"]["input_tokens"]
            assert record[key.OUTPUT_TOKENS] == plain["body"]["usage"]["output_tokens"]
    counted = fact("messages_count_tokens")
    model_server.answers = [answer_to(counted, model_server)]
    context = CallContext(dialect=AnthropicMessages(), native=counted["request"]["body"])
    assert await server.count_tokens(counted["request"]["body"], context) == counted["body"]["input_tokens"]


async def test_its_responses_are_read_as_openais_plain_and_streamed(http, model_server):
    server = NativeServer(http, RESPONSES, model=None)
    plain, stream = fact("responses"), fact("responses_stream")
    streamed = [
        event["delta"] for event in events_of(stream) if event["type"] == "response.output_text.delta"
    ]
    messages = [item for item in plain["body"]["output"] if item["type"] == "message"]
    texts = "".join(part["text"] for item in messages for part in item["content"]), "".join(streamed)
    for told, text in zip((plain, stream), texts, strict=True):
        context = CallContext(dialect=OpenAIResponses(), native=told["request"]["body"])
        record = await recorded(server, told, model_server, context)
        assert orjson.loads(record[key.OUTPUT_MESSAGES])[0]["content"] == text != ""
        assert record[key.INPUT_TOKENS] == plain["body"]["usage"]["input_tokens"]
        assert record[key.OUTPUT_TOKENS] == plain["body"]["usage"]["output_tokens"]
