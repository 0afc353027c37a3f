import orjson
import pytest
from answer_chunks import chunks_from_answer
from openai.types import Completion
from openai_exchange import sse_data

from agl.proxy.dialects.openai_completions import OpenAICompletions
from agl.proxy.refusal import CallRefusedError

DIALECT = OpenAICompletions()


def read(**fields):
    return DIALECT.request(orjson.dumps({"model": "policy", "prompt": "Once", **fields}))


def streamed(request, answer):
    writer = DIALECT.events(request)
    body = b"".join(map(writer.chunk, chunks_from_answer(answer)))
    return sse_data(body), sse_data(writer.end(answer))


def test_the_prompt_stands_in_place_of_messages():
    request = read(temperature=0.5, stop=["."], stream=True, stream_options={"include_usage": True}, top_k=3)
    asked = {
        "model": "policy",
        "prompt": "Once",
        "temperature": 0.5,
        "stop": ["."],
        "top_k": 3,
        "max_tokens": 16,
    }
    assert (request.chat, request.stream) == (asked, True)
    assert read(prompt=["Once"]).chat["prompt"] == "Once"
    assert read(max_tokens=7).chat["max_tokens"] == 7


def test_logprobs_are_a_number_of_alternatives():
    assert read(logprobs=3).chat["top_logprobs"] == 3
    for none in (0, None):
        asked = read(logprobs=none).chat
        assert "top_logprobs" not in asked
        assert "logprobs" not in asked


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"model": 1}, "model"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1, 2]]}, "prompt"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": "1"}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"n": 0}, "n"),
    ],
)
def test_what_has_no_place_in_a_record_is_refused_by_name(changed, param):
    with pytest.raises(CallRefusedError) as caught:
        read(**changed)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_as_many_samples_as_are_answered_may_be_asked_for():
    assert read(n=2, best_of=2).chat["n"] == 2
    assert "best_of" not in read(best_of=1).chat


def test_an_answer_is_a_text_completion(answer_of):
    answer = answer_of(1, 2)
    body = DIALECT.answer(read(n=2), answer)
    assert orjson.loads(body) == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "policy",
        "choices": [
            {"index": 0, "text": "answer 1.0", "logprobs": None, "finish_reason": "stop"},
            {"index": 1, "text": "answer 1.1", "logprobs": None, "finish_reason": "stop"},
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
    assert Completion.model_validate_json(body).choices[1].text == "answer 1.1"


def test_logprobs_have_the_legacy_shape(answer_of):
    answer = answer_of(1)
    content = answer["choices"][0]["logprobs"]["content"]
    content[0] |= {"token": "ab", "top_logprobs": [{"token": "ab", "logprob": -0.5}]}
    shown = orjson.loads(DIALECT.answer(read(logprobs=1), answer))["choices"][0]["logprobs"]
    assert shown == {
        "tokens": ["ab", "y"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{"ab": -0.5}, {}],
        "text_offset": [0, 2],
    }


def test_ids_are_shown_to_who_asks(answer_of):
    shown = orjson.loads(DIALECT.answer(read(return_token_ids=True), answer_of(1)))
    assert (shown["prompt_token_ids"], shown["choices"][0]["token_ids"]) == ([7, 8, 9], [10, 2])


def test_a_stream_says_the_text_and_ends_only_at_its_end(answer_of):
    answer = answer_of(1)
    said, ended = streamed(read(stream=True, logprobs=0, stream_options={"include_usage": True}), answer)
    assert "".join(chunk["choices"][0]["text"] for chunk in said) == "answer 1.0"
    assert [chunk["choices"][0]["finish_reason"] for chunk in said] == [None] * len(said)
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in said] == [[0], [1]]
    finish, usage, done = ended
    assert finish["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]
    assert (usage["usage"], done) == (answer["usage"], "[DONE]")
    assert {(chunk["id"], chunk["object"]) for chunk in (*said, finish, usage)} == {
        ("cmpl-1", "text_completion")
    }


def test_without_chunks_the_end_is_the_whole_answer(answer_of):
    whole, done = sse_data(DIALECT.events(read(stream=True)).end(answer_of(1)))
    assert whole["choices"] == [{"index": 0, "text": "answer 1.0", "logprobs": None, "finish_reason": "stop"}]
    assert done == "[DONE]"


def test_errors_are_openais():
    assert orjson.loads(DIALECT.error_body("x", status=400, code="c"))["error"]["code"] == "c"
    (event,) = sse_data(DIALECT.events(read()).error("x", status=502, code="502"))
    assert event["error"]["type"] == "server_error"
