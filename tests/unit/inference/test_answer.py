from __future__ import annotations

from typing import Any

import pytest

from agl.inference.answer import TokenTexts, chat_completion, cut_at_stop, stop_check
from agl.inference.chat import parse_request
from agl.inference.huggingface import load_tokenizer
from agl.inference.rows import Row
from agl.types.policy import Policy

END = 2


@pytest.fixture(scope="module")
def tokenizer(policy: Policy) -> Any:
    return load_tokenizer(policy)


def sampled(tokenizer: Any, text: str, *, finish_reason: str = "stop") -> Row:
    ids = [*tokenizer.encode(text, add_special_tokens=False), END]
    row = Row(prompt_ids=[1], max_tokens=99, temperature=1.0, draw=lambda: 0.5)
    row.token_ids, row.logprobs, row.finish_reason = ids, [-0.5] * len(ids), finish_reason  # type: ignore[assignment]
    return row


def complete(tokenizer: Any, *rows: Row, **parameters: Any) -> dict[str, Any]:
    request = parse_request({"messages": [{"role": "user", "content": "hi"}], **parameters}, model="policy")
    return chat_completion(
        request,
        [7, 8],
        rows,
        model="policy",
        policy_version=3,
        texts=TokenTexts(tokenizer),
        created=11,
        new_id=lambda: "x",
    )


def test_the_answer_is_openais_with_the_exact_ids(tokenizer: Any):
    row = sampled(tokenizer, "SELECT name")
    answer = complete(tokenizer, row)
    choice = answer.pop("choices")[0]
    size = len(row.token_ids)
    assert answer == {
        "id": "chatcmpl-x",
        "object": "chat.completion",
        "created": 11,
        "model": "policy",
        "usage": {"prompt_tokens": 2, "completion_tokens": size, "total_tokens": size + 2},
        "prompt_token_ids": [7, 8],
        "policy_version": 3,
    }
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "SELECT name", "refusal": None},
        "finish_reason": "stop",
        "logprobs": None,
        "token_ids": row.token_ids,
    }
    assert row.token_ids[-1] == END


def test_openais_client_reads_the_answer(tokenizer: Any):
    from openai.types.chat import ChatCompletion

    tools = [{"type": "function", "function": {"name": "look"}}]
    row = sampled(tokenizer, 'I <tool_call>{"name": "look", "arguments": {}}</tool_call>')
    parsed = ChatCompletion.model_validate(complete(tokenizer, row, tools=tools, logprobs=True))
    assert parsed.choices[0].message.tool_calls[0].function.name == "look"
    assert parsed.choices[0].logprobs.content[0].logprob == -0.5
    assert parsed.choices[0].finish_reason == "tool_calls"
    assert parsed.choices[0].message.content == "I"


def test_tool_calls_are_looked_for_only_when_tools_were_offered(tokenizer: Any):
    text = '<tool_call>{"name": "look"}</tool_call>'
    choice = complete(tokenizer, sampled(tokenizer, text))["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_without_parallel_calls_the_first_one_is_kept(tokenizer: Any):
    row = sampled(tokenizer, '<tool_call>{"name": "a"}</tool_call><tool_call>{"name": "b"}</tool_call>')
    tools = [{"type": "function", "function": {"name": "a"}}]
    message = complete(tokenizer, row, tools=tools, parallel_tool_calls=False)["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["a"]
    assert message["content"] is None


def test_every_choice_is_there(tokenizer: Any):
    answer = complete(
        tokenizer, sampled(tokenizer, "a"), sampled(tokenizer, "b", finish_reason="length"), n=2
    )
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in answer["choices"]] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]
    assert answer["usage"]["completion_tokens"] == 4


def test_each_token_tells_its_text_and_bytes(tokenizer: Any):
    ids = tokenizer.encode("a€", add_special_tokens=False)  # 1 byte and 3 bytes, each its own token here
    content = TokenTexts(tokenizer).content([*ids, END], [-1.0] * 5)
    assert content[0] == {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    assert [entry["bytes"] for entry in content[1:4]] == [None, None, None]
    assert content[4]["token"] == "<|im_end|>"


def test_text_is_cut_before_the_first_stop_string():
    assert cut_at_stop("one two three", ["three", "two"]) == "one "
    assert cut_at_stop("one", ["two"]) is None


def test_no_stop_strings_need_no_check(tokenizer: Any):
    assert stop_check((), tokenizer) is None


@pytest.mark.parametrize("stop", [("END",), ("never", "e€"), ("€\n",)])
def test_the_token_that_completes_a_stop_string_is_found(tokenizer: Any, stop: tuple[str, ...]):
    text = "some long text before, with € in it, thENDe€\nand after"
    ids = tokenizer.encode(text, add_special_tokens=False)
    stopped = stop_check(stop, tokenizer)
    assert stopped is not None
    first = next(size for size in range(1, len(ids) + 1) if stopped(ids[:size]))
    assert any(string in tokenizer.decode(ids[:first]) for string in stop)
    assert not any(string in tokenizer.decode(ids[: first - 1]) for string in stop)
