"""Chunks put together: however an answer is cut, the same answer comes out."""

import pytest
from answer_chunks import chunks_from_answer
from hypothesis import given
from hypothesis import strategies as st

from agl.errors import InferenceError
from agl.proxy.streams import StreamedAnswer


def put_together(chunks):
    answer = StreamedAnswer()
    for chunk in chunks:
        answer.add(chunk)
    return answer.answer()


def chunk(delta=None, *, index=0, **choice):
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": None, **choice}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def message_of(*deltas):
    return put_together([chunk(delta) for delta in deltas])["choices"][0]["message"]


def cuts(text):
    """Every way to cut a text in pieces, none of them empty."""
    return st.lists(st.integers(1, max(1, len(text) - 1)), unique=True).map(
        lambda places: [
            text[begin:end]
            for begin, end in zip([0, *sorted(places)], [*sorted(places), len(text)], strict=True)
            if text[begin:end]
        ]
    )


@st.composite
def answers(draw):
    """A canonical answer with its chunks: several choices that come in turns, cut anywhere."""
    choices, streams = [], []
    for index in range(draw(st.integers(1, 3))):
        text, thought = draw(st.text(max_size=12)), draw(st.text(max_size=6))
        calls = [
            {"id": f"call_{place}", "type": "function", "function": {"name": "run", "arguments": arguments}}
            for place, arguments in enumerate(draw(st.lists(st.text(max_size=10), max_size=2)))
        ]
        ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6))
        entries = [{"token": str(token), "logprob": -token / 7} for token in ids]
        message = {"role": "assistant", "content": text if text or not calls else None}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        choices.append(
            {
                "index": index,
                "message": message,
                "finish_reason": "stop",
                "logprobs": {"content": entries},
                "token_ids": ids,
            }
        )
        deltas = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in draw(cuts(thought))]
        deltas += [{"content": piece} for piece in draw(cuts(text))]
        for place, call in enumerate(calls):
            begun = {**call, "index": place, "function": {"name": "run", "arguments": ""}}
            deltas.append({"tool_calls": [begun]})
            for piece in draw(cuts(call["function"]["arguments"])):
                deltas.append({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        shares = sorted(
            draw(st.lists(st.integers(0, len(ids)), min_size=len(deltas) - 1, max_size=len(deltas) - 1))
        )
        borders = list(zip([0, *shares], [*shares, len(ids)], strict=True))
        stream = [
            chunk(
                delta, index=index, token_ids=ids[a:b], logprobs={"content": entries[a:b]} if b > a else None
            )
            for delta, (a, b) in zip(deltas, borders, strict=True)
        ]
        stream.append(chunk({}, index=index, finish_reason="stop"))
        streams.append(stream)
    mixed = []
    while any(streams):
        stream = draw(st.sampled_from([stream for stream in streams if stream]))
        mixed.append(stream.pop(0))
    usage = {"prompt_tokens": 2, "completion_tokens": 9}
    mixed[0]["prompt_token_ids"] = [4, 5]
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    return whole | {"usage": usage, "prompt_token_ids": [4, 5]}, [*mixed, chunk() | {"usage": usage}]


@given(answers())
def test_however_an_answer_is_cut_the_same_answer_comes_out(drawn):
    whole, chunks = drawn
    assert put_together(chunks) == whole


def test_the_chunks_of_an_engine_are_its_answer(answer_of):
    answer = answer_of(3, 2)
    assert put_together(chunks_from_answer(answer)) == answer


def test_interleaved_arguments_of_parallel_calls_go_to_their_calls():
    def piece(index, arguments, **begun):
        return {"tool_calls": [{"index": index, **begun, "function": {"arguments": arguments}}]}

    said = message_of(
        piece(1, '{"b"', id="b", type="function"), piece(0, '{"a"', id="a"), piece(1, ":1}"), piece(0, ":2}")
    )
    assert [(call["id"], call["function"]["arguments"]) for call in said["tool_calls"]] == [
        ("a", '{"a":2}'),
        ("b", '{"b":1}'),
    ]
    assert said["content"] is None


def test_calls_of_a_server_that_gives_no_index_stay_apart():
    def piece(arguments, **begun):
        return {"tool_calls": [{**begun, "function": {"arguments": arguments}}]}

    said = message_of(piece("{", id="a"), piece("}"), piece("[]", id="b"))
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ["{}", "[]"]


def test_a_name_that_is_repeated_on_every_chunk_is_said_once():
    begun = {"index": 0, "id": "a", "type": "function", "function": {"name": "run", "arguments": "{"}}
    (call,) = message_of({"tool_calls": [begun]}, {"tool_calls": [begun]})["tool_calls"]
    assert call["function"] == {"name": "run", "arguments": "{{"}


def test_what_this_module_does_not_know_is_kept():
    chunks = [
        chunk({"role": "assistant", "annotations": [1]}) | {"service_tier": "flex", "usage": None},
        chunk({"annotations": [2], "audio": {"id": "x", "data": "aa"}}, stop_reason="###"),
        chunk({"audio": {"data": "bb", "expires_at": 3}}, finish_reason="stop"),
    ]
    answer = put_together(chunks)
    (choice,) = answer["choices"]
    assert answer["service_tier"] == "flex"
    assert choice["stop_reason"] == "###"
    assert choice["message"]["annotations"] == [1, 2]
    assert choice["message"]["audio"] == {"id": "x", "data": "aabb", "expires_at": 3}


def test_a_refusal_and_its_logprobs_are_joined():
    answer = put_together(
        [
            chunk({"refusal": "No"}, logprobs={"content": None, "refusal": [{"logprob": -1}]}),
            chunk({"refusal": "."}, logprobs={"content": None, "refusal": [{"logprob": -2}]}),
        ]
    )
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": "No."}
    assert choice["logprobs"] == {"content": None, "refusal": [{"logprob": -1}, {"logprob": -2}]}


def test_an_answer_is_finished_when_each_of_its_choices_is():
    answer = StreamedAnswer()
    assert not answer.begun
    answer.add(chunk({"content": "a"}, finish_reason="stop"))
    assert answer.begun
    assert answer.is_finished(1)
    assert not answer.is_finished(2)
    answer.add(chunk({"content": "b"}, index=1))
    assert not answer.is_finished(2)
    answer.add(chunk({}, index=1, finish_reason="length"))
    assert answer.is_finished(2)


def test_weights_that_were_swapped_on_the_way_are_both_named():
    first, last = (
        chunk({"content": "a"}) | {"policy_version": 3},
        chunk({"content": "b"}) | {"policy_version": 4},
    )
    assert "policy_version_end" not in put_together([first, first])
    answer = put_together([first, last])
    assert (answer["policy_version"], answer["policy_version_end"]) == (3, 4)


@pytest.mark.parametrize(
    "broken",
    [
        [],
        "text",
        None,
        {"choices": 1},
        {"choices": ["x"]},
        {"choices": [{"index": "one"}]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"tool_calls": ["x"]}}]},
        {"choices": [{"token_ids": 1}]},
        {"choices": [{"logprobs": []}, {"logprobs": [1]}]},
    ],
)
def test_a_chunk_of_another_shape_is_the_upstreams_fault(broken):
    with pytest.raises(InferenceError) as caught:
        StreamedAnswer().add(broken)
    assert caught.value.status == 502
