import orjson
import pytest
from answer_chunks import chunks_from_answer
from openai_exchange import sse_data

from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.refusal import CallRefusedError

DIALECT = OpenAIChat()
HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


def read(**fields):
    return DIALECT.request(orjson.dumps({**HELLO, **fields}))


def chunks_of(request, answer):
    """What the client gets of a streamed answer: the chunks, without ``[DONE]``."""
    writer = DIALECT.events(request)
    body = b"".join(map(writer.chunk, chunks_from_answer(answer)))
    return sse_data(body), sse_data(writer.end(answer))


def test_the_canonical_request_is_the_clients_without_the_stream():
    request = read(stream=True, stream_options={"include_usage": True}, chat_template_kwargs={"a": 1})
    assert request.stream
    assert request.chat == {**HELLO, "chat_template_kwargs": {"a": 1}}
    assert not read().stream
    assert not read(stream=False).stream
    assert not read(stream=None).stream


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": 129}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": 1}, "stream_options"),
    ],
)
def test_a_wrong_shape_names_its_field(changed, param):
    with pytest.raises(CallRefusedError) as caught:
        read(**changed)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("body", [b"", b"nan", b'{"model": "\\ud800"}', b"[" * 5000, b"\x80", b"[]"])
def test_what_is_not_json_is_refused(body):
    with pytest.raises(CallRefusedError):
        DIALECT.request(body)


def test_an_answer_keeps_what_the_client_asked_for(answer_of):
    answer = answer_of(1)
    shown = orjson.loads(DIALECT.answer(read(logprobs=True, return_token_ids=True), answer))
    assert shown == {name: value for name, value in answer.items() if name != "policy_version"}
    (choice,) = orjson.loads(DIALECT.answer(read(logprobs=True), answer))["choices"]
    assert choice["logprobs"] == answer["choices"][0]["logprobs"]
    assert "token_ids" not in choice


def test_an_answer_hides_what_the_client_did_not_ask_for_and_is_not_changed_by_that(answer_of):
    answer = answer_of(1)
    shown = orjson.loads(DIALECT.answer(read(), answer))
    assert "prompt_token_ids" not in shown
    assert shown["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "answer 1.0"},
        "finish_reason": "stop",
        "logprobs": None,
    }
    assert answer == answer_of(1)


def test_a_stream_says_what_was_asked_for_and_ends_only_at_its_end(answer_of):
    said, ended = chunks_of(read(stream=True), answer_of(1))
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in said) == "answer 1.0"
    assert said[0]["choices"][0]["delta"]["role"] == "assistant"
    for chunk in said:
        assert set(chunk) == {"id", "object", "created", "model", "choices"}
        assert (chunk["id"], chunk["object"]) == ("chatcmpl-1", "chat.completion.chunk")
        assert set(chunk["choices"][0]) == {"index", "delta", "finish_reason", "logprobs"}
        assert (chunk["choices"][0]["finish_reason"], chunk["choices"][0]["logprobs"]) == (None, None)
    finish = {"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}
    assert [chunk["choices"] for chunk in ended[:-1]] == [[finish]]
    assert ended[-1] == "[DONE]"


def test_usage_comes_last_when_it_was_asked_for(answer_of):
    answer = answer_of(1)
    said, ended = chunks_of(read(stream=True, stream_options={"include_usage": True}), answer)
    assert [chunk["usage"] for chunk in said] == [None] * len(said)
    *_, usage, done = ended
    assert (usage["choices"], usage["usage"], done) == ([], answer["usage"], "[DONE]")


def test_ids_and_logprobs_that_were_asked_for_are_on_their_chunks(answer_of):
    said, _ = chunks_of(read(stream=True, logprobs=True, return_token_ids=True), answer_of(1))
    assert said[0]["prompt_token_ids"] == [7, 8, 9]
    assert all("prompt_token_ids" not in chunk for chunk in said[1:])
    choices = [chunk["choices"][0] for chunk in said]
    assert [choice["token_ids"] for choice in choices] == [[10], [2]]
    assert [choice["logprobs"]["content"][0]["logprob"] for choice in choices] == [-0.5, -0.25]


def test_each_choice_of_a_stream_is_told_and_finished(answer_of):
    said, ended = chunks_of(read(stream=True, n=2), answer_of(1, 2))
    texts = {0: "", 1: ""}
    for chunk in said:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"]["content"]
    assert texts == {0: "answer 1.0", 1: "answer 1.1"}
    assert [chunk["choices"][0]["index"] for chunk in ended[:-1]] == [0, 1]


def test_a_chunk_that_tells_the_client_nothing_is_left_out(answer_of):
    writer = DIALECT.events(read(stream=True))
    choice = {"index": 0, "delta": {"content": ""}, "token_ids": [240], "logprobs": {"content": [{}]}}
    assert writer.chunk({"id": "x", "choices": [choice | {"finish_reason": None}]}) == b""
    assert writer.chunk({"id": "x", "choices": [], "usage": {"prompt_tokens": 1}}) == b""


def test_without_chunks_the_end_is_the_whole_answer(answer_of):
    answer = answer_of(1, 2)
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    answer["choices"][1]["message"] |= {"content": None, "tool_calls": [call]}
    whole, *ends = sse_data(DIALECT.events(read(stream=True)).end(answer))
    assert whole["choices"][0]["delta"] == {"role": "assistant", "content": "answer 1.0"}
    assert whole["choices"][1]["delta"]["tool_calls"] == [{"index": 0, **call}]
    assert [choice["finish_reason"] for choice in whole["choices"]] == [None, None]
    assert len(ends) == 3


def test_an_upstreams_error_stays_its_own_and_ours_has_openais_shape():
    own = {"error": {"message": "busy", "code": "busy"}}
    assert orjson.loads(DIALECT.error_body("x", status=429, code="429", body=own)) == own
    ours = orjson.loads(DIALECT.error_body("too long", status=400, code="too_long"))["error"]
    assert (ours["message"], ours["type"], ours["code"]) == ("too long", "invalid_request_error", "too_long")
    (event,) = sse_data(DIALECT.events(read(stream=True)).error("x", status=502, code="502"))
    assert event["error"]["message"] == "x"
