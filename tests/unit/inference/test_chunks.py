from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from answer_chunks import answer_from_chunks
from hypothesis import given
from hypothesis import strategies as st
from tiny_policies import byte_tokenizer, word_tokenizer

from agl.errors import InferenceError
from agl.inference.answer import TokenTexts, chat_completion
from agl.inference.chat import parse_request
from agl.inference.chunks import ChunkStream
from agl.inference.rows import Row
from agl.inference.text_stream import TokenJoints

BYTES = byte_tokenizer("", vocabulary=300, texts=["SELECT name FROM employees"])
END = 2
CALL = '<tool_call>{"name": "look", "arguments": {"at": "€"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look"}}]
PIECES = [CALL, "\n", " ", "a€", "<tool_call>", '{"name": "look"}', "</tool_call>", "SELECT"]


def row_of_length(limit: int) -> Row:
    return Row(prompt_ids=[7, 8], max_tokens=limit, temperature=1.0, draw=lambda: 0.5)


def stream_of(chat: Any, rows: list[Row], tokenizer: Any = BYTES) -> ChunkStream:
    ids = count()
    return ChunkStream(
        chat,
        rows,
        model="policy",
        texts=TokenTexts(tokenizer),
        joints=TokenJoints(tokenizer),
        created=11,
        new_id=lambda: str(next(ids)),
    )


def whole_of(chat: Any, rows: list[Row]) -> dict[str, Any]:
    ids = count()
    return chat_completion(
        chat,
        [7, 8],
        rows,
        model="policy",
        policy_version=3,
        texts=TokenTexts(BYTES),
        created=11,
        new_id=lambda: str(next(ids)),
    )


def without_call_ids(answer: dict[str, Any]) -> dict[str, Any]:
    """A call's id is a random one, drawn anew for each answer."""
    for choice in answer["choices"]:
        for call in choice["message"].get("tool_calls", []):
            del call["id"]
    return answer


@given(
    texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), min_size=1, max_size=3),
    tools=st.booleans(),
    logprobs=st.booleans(),
    parallel=st.booleans(),
    sizes=st.lists(st.integers(0, 9), max_size=40),
)
def test_the_chunks_together_are_the_answer(
    texts: list[str], tools: bool, logprobs: bool, parallel: bool, sizes: list[int]
):
    request = {"messages": [{"role": "user", "content": "hi"}], "n": len(texts), "logprobs": logprobs}
    request |= {"tools": TOOLS, "parallel_tool_calls": parallel} if tools else {}
    chat = parse_request(request, model="policy")
    sampled = [[*BYTES.encode(text, add_special_tokens=False), END] for text in texts]
    rows = [row_of_length(99) for _ in texts]
    stream, chunks, portions = stream_of(chat, rows), [], iter(sizes)
    while not stream.finished:
        for row, ids in zip(rows, sampled, strict=True):
            size = len(row.token_ids)
            new = ids[size : size + next(portions, 9)]
            row.token_ids += new
            row.logprobs += [-size / 8 - place for place in range(len(new))]
            if len(row.token_ids) == len(ids):
                row.finish_reason = "stop"
        chunks += stream.new_chunks(3)
    chunks.append(stream.usage_chunk(3))
    assert without_call_ids(answer_from_chunks(chunks)) == without_call_ids(whole_of(chat, rows))


def test_each_chunk_holds_the_ids_and_logprobs_sampled_since_the_last():
    chat = parse_request(
        {"messages": [{"role": "user", "content": "hi"}], "n": 2, "logprobs": True}, model="policy"
    )
    rows = [row_of_length(9), row_of_length(9)]
    stream = stream_of(chat, rows)
    a, euro = 67, BYTES.encode("€", add_special_tokens=False)
    text = BYTES.decode([a])
    rows[1].token_ids, rows[1].logprobs = [a], [-0.5]
    (chunk,) = stream.new_chunks(3)
    assert chunk == {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": 11,
        "model": "policy",
        "policy_version": 3,
        "prompt_token_ids": [7, 8],
        "choices": [
            {
                "index": 1,
                "delta": {"role": "assistant", "refusal": None, "content": text},
                "finish_reason": None,
                "logprobs": {
                    "content": [
                        {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}
                    ],
                    "refusal": None,
                },
                "token_ids": [a],
            }
        ],
    }
    assert list(stream.new_chunks(3)) == []
    rows[1].token_ids += euro[:2]
    rows[1].logprobs += [-1.0, -2.0]
    (chunk,) = stream.new_chunks(3)
    assert "prompt_token_ids" not in chunk
    assert chunk["choices"][0]["delta"] == {}
    assert chunk["choices"][0]["token_ids"] == euro[:2]
    assert [entry["logprob"] for entry in chunk["choices"][0]["logprobs"]["content"]] == [-1.0, -2.0]


def test_a_row_that_broke_writes_nothing():
    chat = parse_request({"messages": [{"role": "user", "content": "hi"}]}, model="policy")
    row = row_of_length(9)
    stream = stream_of(chat, [row])
    row.finish_reason = "error"
    assert list(stream.new_chunks(3)) == []
    assert not stream.finished


def test_a_tokenizer_that_rewrites_shown_text_fails_the_call():
    words = word_tokenizer("", words=["<pad>", "<s>", "</s>", "do", "n't"])
    chat = parse_request({"messages": [{"role": "user", "content": "hi"}]}, model="policy")
    row = row_of_length(9)
    stream = stream_of(chat, [row], words)
    row.token_ids, row.logprobs = [3, 4], [-1.0, -1.0]
    assert next(stream.new_chunks(3))["choices"][0]["delta"]["content"] == "do n't"
    words.clean_up_tokenization_spaces = True  # as nothing but a tokenizer of an unknown kind would do it
    row.token_ids, row.logprobs, row.finish_reason = [3, 4, 2], [-1.0, -1.0, -1.0], "stop"
    with pytest.raises(InferenceError, match="cannot be streamed") as caught:
        list(stream.new_chunks(3))
    assert caught.value.status == 500


def test_openais_client_reads_the_chunks():
    from openai.types.chat import ChatCompletionChunk

    chat = parse_request(
        {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "logprobs": True}, model="policy"
    )
    row = row_of_length(99)
    row.token_ids = [*BYTES.encode("I " + CALL, add_special_tokens=False), END]
    row.logprobs, row.finish_reason = [-0.5] * len(row.token_ids), "stop"
    stream = stream_of(chat, [row])
    (only,) = stream.new_chunks(3)
    parsed = ChatCompletionChunk.model_validate(only)
    assert parsed.choices[0].delta.content == "I"
    assert parsed.choices[0].delta.tool_calls[0].function.arguments == '{"at": "\\u20ac"}'
    assert parsed.choices[0].finish_reason == "tool_calls"
    assert ChatCompletionChunk.model_validate(stream.usage_chunk(3)).usage.total_tokens == 2 + len(
        row.token_ids
    )
