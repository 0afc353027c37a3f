import orjson
import pytest

from agl.proxy.record import Call, Ended, answered_span, embeddings_span, failed_span, refused_embeddings_span
from agl.proxy.routes import Address
from agl.types import Span
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed

ADDRESS = Address(rollout_id="r1", attempt_id="a1", agent="writer", endpoint="chat")
REQUEST = {"model": "policy", "messages": [{"role": "user", "content": "é"}], "temperature": 0.5}


def call_of(traceparent=None, policy_version=None, **request):
    return Call(
        address=ADDRESS,
        request={**REQUEST, **request},
        span_id="00f067aa0ba902b7",
        traceparent=traceparent,
        started_ns=1_000_000_000,
        policy_version=policy_version,
    )


def test_the_span_holds_the_call_in_otels_names(answer_of):
    tools = [{"type": "function", "function": {"name": "run"}}]
    call = call_of(tools=tools, top_p=0.9, max_tokens=8, seed=5)
    span = answered_span(call, answer_of(1), Ended(ended_ns=1_250_000_000))
    assert (span.name, span.kind, span.span_id) == ("chat policy", "client", "00f067aa0ba902b7")
    assert (span.start_time_ns, span.end_time_ns) == (1_000_000_000, 1_250_000_000)
    assert (span.rollout_id, span.attempt_id, span.sequence_id) == ("r1", "a1", None)
    read = span.attributes
    assert read[key.OPERATION] == "chat"
    assert read[key.REQUEST_MODEL] == read[key.RESPONSE_MODEL] == "policy"
    assert read[key.RESPONSE_ID] == "chatcmpl-1"
    assert read[key.FINISH_REASONS] == ["stop"]
    assert (read[key.INPUT_TOKENS], read[key.OUTPUT_TOKENS]) == (3, 2)
    assert orjson.loads(read[key.INPUT_MESSAGES]) == [{"role": "user", "content": "é"}]
    assert orjson.loads(read[key.OUTPUT_MESSAGES]) == [{"role": "assistant", "content": "answer 1.0"}]
    assert orjson.loads(read[key.TOOL_DEFINITIONS]) == tools
    sampling = (read[key.TEMPERATURE], read[key.TOP_P], read[key.MAX_TOKENS], read[key.SEED])
    assert sampling == (0.5, 0.9, 8, 5)
    assert read[key.AGENT] == "writer"
    assert read[key.LATENCY_SECONDS] == 0.25
    assert key.MISSING_IDS_CAUSE not in read


def test_ids_and_logprobs_are_those_of_the_answer(answer_of):
    read = answered_span(call_of(n=2), answer_of(3, 2), Ended(ended_ns=2)).attributes
    assert ids_from_packed(read[key.PROMPT_TOKEN_IDS]) == [7, 8, 9]
    assert ids_from_packed(read["agl.response_token_ids"]) == [30, 2]
    assert ids_from_packed(read["agl.response_token_ids.1"]) == [31, 2]
    assert floats_from_packed(read["agl.response_logprobs.1"]) == [-0.5, -0.25]
    assert read[key.CHOICE_COUNT] == 2


def without_prompt(answer):
    del answer["prompt_token_ids"]


def without_ids(answer):
    answer["choices"][0]["token_ids"] = None


def with_ids_of_text(answer):
    answer["choices"][0]["token_ids"] = ["a", "b"]


def with_ids_too_large(answer):
    answer["choices"][0]["token_ids"] = [2**31, 1]


def without_logprobs(answer):
    answer["choices"][0]["logprobs"] = None


def with_a_logprob_missing(answer):
    answer["choices"][0]["logprobs"]["content"][0]["logprob"] = None


def with_one_logprob_less(answer):
    answer["choices"][0]["logprobs"]["content"].pop()


def with_a_nan(answer):
    answer["choices"][0]["logprobs"]["content"][0]["logprob"] = float("nan")


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (without_prompt, "upstream_without_ids"),
        (without_ids, "upstream_without_ids"),
        (with_ids_of_text, "upstream_without_ids"),
        (with_ids_too_large, "upstream_without_ids"),
        (without_logprobs, "upstream_without_logprobs"),
        (with_a_logprob_missing, "upstream_without_logprobs"),
        (with_one_logprob_less, "length_mismatch"),
        (with_a_nan, "logprob_not_finite"),
    ],
)
def test_an_incomplete_triple_is_left_out_with_its_cause(answer_of, spoil, cause):
    answer = answer_of(1)
    spoil(answer)
    read = answered_span(call_of(), answer, Ended(ended_ns=2)).attributes
    assert read[key.MISSING_IDS_CAUSE] == cause
    assert key.RESPONSE_TOKEN_IDS not in read
    assert key.RESPONSE_LOGPROBS not in read


def test_one_spoilt_choice_leaves_the_others_whole(answer_of):
    answer = answer_of(1, 2)
    answer["choices"][1]["token_ids"] = None
    read = answered_span(call_of(n=2), answer, Ended(ended_ns=2)).attributes
    assert key.MISSING_IDS_CAUSE not in read
    assert read["agl.missing_ids_cause.1"] == "upstream_without_ids"
    assert ids_from_packed(read[key.RESPONSE_TOKEN_IDS]) == [10, 2]


def test_the_version_that_sampled_wins_over_the_version_of_the_resources(answer_of):
    answer = answer_of(1)
    assert (
        answered_span(call_of(policy_version=3), answer, Ended(ended_ns=2)).attributes[key.POLICY_VERSION]
        == 4
    )
    del answer["policy_version"]
    assert (
        answered_span(call_of(policy_version=3), answer, Ended(ended_ns=2)).attributes[key.POLICY_VERSION]
        == 3
    )
    assert key.POLICY_VERSION not in answered_span(call_of(), answer, Ended(ended_ns=2)).attributes


def test_the_span_joins_the_agents_own_trace(answer_of):
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b8"
    span = answered_span(call_of(traceparent=f"00-{trace}-{parent}-01"), answer_of(1), Ended(ended_ns=2))
    assert (span.trace_id, span.parent_id) == (trace, parent)


@pytest.mark.parametrize("traceparent", [None, "", "garbage", "00-XYZ-1-01"])
def test_without_a_trace_the_calls_of_an_attempt_share_one(answer_of, traceparent):
    first = answered_span(call_of(traceparent=traceparent), answer_of(1), Ended(ended_ns=2))
    second = failed_span(call_of(), Ended(ended_ns=3), error_type="500", description="x")
    assert first.trace_id == second.trace_id
    assert len(first.trace_id) == 32
    assert first.parent_id is None


def test_a_failed_call_keeps_what_was_asked_and_why_it_failed():
    span = failed_span(call_of(), Ended(ended_ns=3), error_type="429", description="x" * 5000)
    assert (span.status.code, len(span.status.description)) == ("error", 2000)
    assert span.attributes[key.ERROR_TYPE] == "429"
    assert key.INPUT_MESSAGES in span.attributes


def test_the_span_is_one_that_a_check_would_pass(answer_of):
    call = call_of(n=2)
    for span in (
        answered_span(call, answer_of(1, 2), Ended(ended_ns=2)),
        failed_span(call, Ended(ended_ns=2), error_type="x", description="y", received=answer_of(1)),
        embeddings_span(call_of(), {"usage": {"prompt_tokens": 3}}, Ended(ended_ns=2)),
        refused_embeddings_span(call_of(), Ended(ended_ns=2), error_type="x", description="y"),
    ):
        assert Span.model_validate(span.model_dump()) == span
