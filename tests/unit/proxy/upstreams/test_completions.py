"""Text completions on the wire, chat completions inside."""

from __future__ import annotations

from agl.proxy.upstreams.completions import chat_from_completion, chunk_from_completion, completions_request

NATIVE = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 5,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "text": "a b",
            "finish_reason": "stop",
            "token_ids": [1, 2],
            "prompt_token_ids": [7, 8],
            "logprobs": {
                "tokens": ["a", " b"],
                "token_logprobs": [-0.5, -1.0],
                "top_logprobs": [{"a": -0.5, "x": -2.0}, {" b": -1.0}],
                "text_offset": [0, 1],
            },
        }
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
}


def test_logprobs_are_a_number_of_alternatives_in_text_completions():
    asked = completions_request(
        {"model": "m", "prompt": "p", "logprobs": True, "top_logprobs": 3, "max_tokens": 5}
    )
    assert asked == {"model": "m", "prompt": "p", "logprobs": 3, "max_tokens": 5}
    assert completions_request({"prompt": "p", "logprobs": True})["logprobs"] == 1
    assert "logprobs" not in completions_request({"prompt": "p", "logprobs": False})


def test_a_text_completion_is_a_chat_completion_with_its_ids_and_logprobs():
    answer = chat_from_completion(NATIVE)
    (choice,) = answer["choices"]
    assert answer["object"] == "chat.completion"
    assert answer["prompt_token_ids"] == [7, 8]
    assert choice["message"] == {"role": "assistant", "content": "a b"}
    assert choice["token_ids"] == [1, 2]
    assert "prompt_token_ids" not in choice
    assert [(entry["token"], entry["logprob"]) for entry in choice["logprobs"]["content"]] == [
        ("a", -0.5),
        (" b", -1.0),
    ]
    assert [top["token"] for top in choice["logprobs"]["content"][0]["top_logprobs"]] == ["a", "x"]
    assert answer["usage"] == NATIVE["usage"]


def test_a_chunk_has_its_text_as_delta():
    chunk = chunk_from_completion(NATIVE)
    assert chunk["object"] == "chat.completion.chunk"
    assert chunk["choices"][0]["delta"] == {"content": "a b"}
    assert chunk_from_completion({"choices": [], "usage": {}})["choices"] == []


def test_logprobs_of_uneven_length_are_none():
    uneven = {"choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": []}}]}
    assert chat_from_completion(uneven)["choices"][0]["logprobs"] is None


def test_a_choice_without_text_has_no_message():
    """So that it is no answer, and not an empty one."""
    assert chat_from_completion({"choices": [{"index": 0}]})["choices"][0]["message"] is None
    assert chat_from_completion({"choices": [{"text": None}]})["choices"][0]["message"]["content"] == ""
