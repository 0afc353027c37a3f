import orjson
import pytest

from agl.errors import InferenceError
from agl.proxy.record import Call, Ended, answered_span, failed_span
from agl.proxy.recorded import RecordedAnswer, answer_from_span, chunks_from_answer, recorded_answer
from agl.proxy.routes import Address
from agl.proxy.streams import StreamedAnswer
from agl.types import attributes as key

ADDRESS = Address(rollout_id="r1", attempt_id="a1", agent=None, endpoint="chat")
REQUEST = {"model": "policy", "temperature": 1.0, "messages": [{"role": "user", "content": "hi"}]}
CALL = Call(
    address=ADDRESS,
    request=REQUEST,
    span_id="f" * 16,
    traceparent=None,
    started_ns=5 * 10**9,
    policy_version=None,
)
TOOL = {"id": "call-1", "type": "function", "function": {"name": "run", "arguments": '{"x": "ä"}'}}


@pytest.fixture
def answer(answer_of):
    made = answer_of(3, num_choices=2)
    made["choices"][1] |= {"finish_reason": "tool_calls"}
    made["choices"][1]["message"] = {"role": "assistant", "content": None, "tool_calls": [TOOL, TOOL]}
    made["usage"]["prompt_tokens_details"] = {"cached_tokens": 2}
    return made | {"policy_version_end": 5}


def recorded(answer):
    return answered_span(CALL, answer, Ended(ended_ns=6 * 10**9))


def test_the_record_of_a_recorded_answer_is_the_first_ones_record(answer):
    first = recorded(answer)
    again = recorded(answer_from_span(first))
    assert again == first
    assert again.attributes[key.CACHED_TOKENS] == 2


def test_a_recorded_answer_streamed_is_the_answer_plain(answer):
    plain = answer_from_span(recorded(answer))
    streamed = StreamedAnswer()
    for chunk in chunks_from_answer(plain):
        streamed.add(chunk)
    assert recorded(streamed.answer()) == recorded(answer)


def test_what_the_answer_said_comes_back(answer):
    back = answer_from_span(recorded(answer))
    assert back["id"] == "chatcmpl-3"
    assert back["created"] == 5
    assert back["usage"] == answer["usage"]
    assert [choice["finish_reason"] for choice in back["choices"]] == ["stop", "tool_calls"]
    assert back["choices"][1]["message"]["tool_calls"] == [TOOL, TOOL]
    assert back["prompt_token_ids"] == [7, 8, 9]
    assert back["choices"][0]["token_ids"] == [30, 2]
    assert back["choices"][0]["logprobs"]["content"] == [
        {"token": "token_id:30", "logprob": -0.5, "bytes": None, "top_logprobs": []},
        {"token": "token_id:2", "logprob": -0.25, "bytes": None, "top_logprobs": []},
    ]


def test_an_answer_without_ids_comes_back_without(answer):
    del answer["prompt_token_ids"]
    for choice in answer["choices"]:
        del choice["token_ids"]
    back = answer_from_span(recorded(answer))
    assert "prompt_token_ids" not in back
    assert all("token_ids" not in choice and choice["logprobs"] is None for choice in back["choices"])


def test_a_failed_call_has_no_answer(answer):
    span = failed_span(
        CALL, Ended(ended_ns=6 * 10**9), error_type="cancelled", description="gone", received=answer
    )
    assert answer_from_span(span) is None
    assert recorded_answer(span) is None


def test_a_record_that_cannot_be_read_is_said_to_be_so(answer):
    span = recorded(answer)
    broken = span.changed(attributes={**span.attributes, key.PROMPT_TOKEN_IDS: "!"})
    with pytest.raises(InferenceError, match="record of call ffffffffffffffff"):
        recorded_answer(broken)


async def test_a_recorded_answer_stands_in_for_the_upstream(answer):
    upstream = RecordedAnswer(answer)
    assert upstream.model == "policy"
    assert await upstream.complete_chat({}) == answer
    chunks = [chunk async for chunk in upstream.stream_chat({})]
    assert [orjson.dumps(chunk) for chunk in chunks] == [orjson.dumps(c) for c in chunks_from_answer(answer)]
