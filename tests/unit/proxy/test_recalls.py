"""What a memory has lost comes back from the record, as if it had never been lost."""

from __future__ import annotations

import orjson
import pytest
from responses_exchange import canonical, function_call

from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.dialects.responses.answers import output_items, response_id
from agl.proxy.dialects.responses.memory import ResponseMemory
from agl.proxy.recalls import recall
from agl.proxy.record import Call, Ended, answered_span, failed_span
from agl.proxy.routes import Address
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest
from agl.types import attributes as key

WEATHER = function_call("call_1", "weather", '{"city": "Oslo"}')


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


@pytest.fixture
async def address(store):
    attempt = (await store.start_rollout(RolloutRequest(task=1))).attempt
    return Address(
        rollout_id=attempt.rollout_id, attempt_id=attempt.attempt_id, agent=None, endpoint="responses"
    )


@pytest.fixture
def say(store, address):
    """Makes a call with a memory and records it; returns the Response's id and the request."""
    number = iter(range(1, 1000))

    async def say(memory, answer, **fields):
        request = memory.resolved(asked(**fields))
        assert request.native_only is None
        count = next(number)
        answer = {**answer, "id": f"chatcmpl-{count}"}
        call = Call(
            address=address,
            request={"temperature": 1.0, **request.chat},
            span_id=f"{count:016x}",
            traceparent=None,
            started_ns=count * 10**9,
            policy_version=None,
            dialect="openai.responses",
        )
        span = answered_span(call, answer, Ended(ended_ns=count * 10**9 + 1))
        marks = memory.remember(request, answer)
        await store.add_span(span.changed(attributes={**span.attributes, **marks}))
        return response_id(request, answer["id"]), request, answer

    return say


def asked(**fields):
    return OpenAIResponses().request(orjson.dumps({"model": "policy", "input": "hello"} | fields))


async def resolved(store, address, **fields):
    """What a proxy that has just started makes of a request."""
    memory, request = ResponseMemory(), asked(**fields)
    await recall(store, memory, request, address)
    return memory.resolved(request)


async def test_a_conversation_goes_on_after_a_restart_as_it_would_have(store, address, say):
    memory = ResponseMemory()
    looking = canonical({"reasoning_content": "Hm.", "tool_calls": [WEATHER]}, finish_reason="tool_calls")
    first, *_ = await say(memory, looking, instructions="Old rules.")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "18 C\n"}
    told = canonical({"content": " Warm.\n"})
    second, *_ = await say(memory, told, input=[output], instructions="Rules.", previous_response_id=first)
    third, *_ = await say(memory, canonical({"content": "Yes."}), input="Sure?", previous_response_id=second)
    for name in (first, second, third):
        for instructions in (None, "New rules."):
            fields = {"input": "And?", "previous_response_id": name, "instructions": instructions}
            after = await resolved(store, address, **fields)
            assert after.native_only is None
            assert after.chat == memory.resolved(asked(**fields)).chat
    assert [message["role"] for message in after.chat["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant", "user", "assistant", "user")
    ]


async def test_references_to_items_are_found_again(store, address, say):
    memory = ResponseMemory()
    _, request, answer = await say(memory, canonical({"content": "I look.", "tool_calls": [WEATHER]}))
    references = [{"type": "item_reference", "id": item["id"]} for item in output_items(request, answer)]
    fields = {"input": [*references, {"type": "function_call_output", "call_id": "call_1", "output": "18"}]}
    after = await resolved(store, address, **fields)
    assert after.native_only is None
    assert after.chat == memory.resolved(asked(**fields)).chat


async def test_what_was_forgotten_for_room_is_read_again(store, address, say):
    memory = ResponseMemory(max_responses=1)
    first, *_ = await say(memory, canonical({"content": "one"}))
    await say(memory, canonical({"content": "two"}), input="else")
    request = asked(input="And?", previous_response_id=first)
    assert memory.resolved(request).native_only is not None
    await recall(store, memory, request, address)
    said = [message["content"] for message in memory.resolved(request).chat["messages"]]
    assert said == ["hello", "one", "And?"]


async def test_what_was_not_to_be_stored_and_what_is_unknown_stay_unknown(store, address, say):
    secret, *_ = await say(ResponseMemory(), canonical({"content": "Hi"}), store=False)
    for name in (secret, "resp_gone"):
        after = await resolved(store, address, previous_response_id=name)
        assert after.native_only is not None
        assert after.native_only.code == "previous_response_not_found"


async def test_another_attempts_conversation_is_not_gone_on_from(store, address, say):
    first, *_ = await say(ResponseMemory(), canonical({"content": "Hi"}))
    other = (await store.start_rollout(RolloutRequest(task=2))).attempt
    elsewhere = Address(
        rollout_id=other.rollout_id, attempt_id=other.attempt_id, agent=None, endpoint="responses"
    )
    assert (await resolved(store, elsewhere, previous_response_id=first)).native_only is not None


async def test_the_record_is_read_only_for_what_is_lacking(address, say):
    memory = ResponseMemory()
    first, *_ = await say(memory, canonical({"content": "Hi"}))
    for fields in ({}, {"previous_response_id": first}):
        await recall(None, memory, asked(**fields), address)


async def test_a_record_that_cannot_be_read_and_a_failed_call_are_passed_over(store, address, say):
    first, request, answer = await say(ResponseMemory(), canonical({"content": "Hi"}))
    call = Call(
        address=address,
        request={"temperature": 1.0, **request.chat},
        span_id="f" * 16,
        traceparent=None,
        started_ns=1,
        policy_version=None,
    )
    failed = failed_span(call, Ended(ended_ns=2), error_type="x", description="x", received=answer)
    broken = answered_span(call, answer, Ended(ended_ns=2)).changed(span_id="e" * 16)
    for span, marks in ((failed, {key.MEMORY_ID: "resp_f"}), (broken, {key.MEMORY_ID: "resp_b"})):
        spoilt = {**span.attributes, **marks}
        if span is broken:
            spoilt[key.INPUT_MESSAGES] = "no json"
        await store.add_span(span.changed(attributes=spoilt))
    for name in ("resp_f", "resp_b"):
        assert (await resolved(store, address, previous_response_id=name)).native_only is not None
    assert (await resolved(store, address, previous_response_id=first)).native_only is None
