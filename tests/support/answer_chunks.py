"""A whole answer cut into the chunks in which an engine might have streamed it, and chunks put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_OF_EVERY_CHUNK = ("id", "created", "model", "policy_version")


def chunks_from_answer(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a chunk for each sampled id, the choices in turn, with an even share of the text; then the usage."""
    shared = {"object": "chat.completion.chunk"} | {
        key: answer[key] for key in _OF_EVERY_CHUNK if key in answer
    }
    first = {"prompt_token_ids": answer["prompt_token_ids"]} if "prompt_token_ids" in answer else {}
    pieces = [list(_pieces(choice)) for choice in answer["choices"]]
    for place in range(max(map(len, pieces))):
        for of_choice in pieces:
            if place < len(of_choice):
                yield shared | first | {"choices": [of_choice[place]]}
                first = {}
    yield shared | {"choices": [], "usage": answer.get("usage")}


def answer_from_chunks(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the answer that the chunks of a stream are, checking that each has what the contract says."""
    *given, last = chunks
    answer = {key: last[key] for key in (*_OF_EVERY_CHUNK, "usage") if key in last}
    answer |= {"object": "chat.completion", "choices": []}
    assert last["choices"] == []
    choices: dict[int, dict[str, Any]] = {}
    for place, chunk in enumerate(given):
        assert chunk["object"] == "chat.completion.chunk"
        assert all(chunk.get(key) == answer.get(key) for key in _OF_EVERY_CHUNK)
        assert ("prompt_token_ids" in chunk) == (place == 0 and "prompt_token_ids" in given[0])
        answer |= (
            {"prompt_token_ids": chunk["prompt_token_ids"]}
            if place == 0 and "prompt_token_ids" in chunk
            else {}
        )
        (piece,) = chunk["choices"]
        _join(choices.setdefault(piece["index"], {"finish_reason": None}), piece)
    answer["choices"] = [choices[index] for index in sorted(choices)]
    for choice in answer["choices"]:
        message = choice["message"]
        if "tool_calls" in message:
            message["content"] = message["content"] or None
    return answer


def _join(choice: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add one choice's part of a chunk to what came before."""
    assert choice["finish_reason"] is None, "nothing comes behind a finish reason"
    delta = piece["delta"]
    if "message" not in choice:
        choice |= {
            "index": piece["index"],
            "message": {"role": delta["role"], "content": ""},
            "logprobs": None,
        }
        choice["message"] |= {"refusal": delta["refusal"]} if "refusal" in delta else {}
    else:
        assert "role" not in delta
    choice["message"]["content"] += delta.get("content") or ""
    if delta.get("tool_calls"):
        assert [call["index"] for call in delta["tool_calls"]] == list(range(len(delta["tool_calls"])))
        bare = [{key: value for key, value in call.items() if key != "index"} for call in delta["tool_calls"]]
        choice["message"]["tool_calls"] = bare
    if "token_ids" in piece:
        choice.setdefault("token_ids", []).extend(piece["token_ids"])
    if piece["logprobs"] is not None:
        choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
        choice["logprobs"]["content"].extend(piece["logprobs"]["content"])
    choice["finish_reason"] = piece["finish_reason"]


def _pieces(choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    message, ids = choice["message"], choice.get("token_ids")
    text = message.get("content") or ""
    count = max(1, len(ids) if ids is not None else len(text))
    content = (choice.get("logprobs") or {}).get("content")
    for place in range(count):
        delta: dict[str, Any] = {"role": message["role"]} if place == 0 else {}
        delta["content"] = text[len(text) * place // count : len(text) * (place + 1) // count]
        last = place == count - 1
        if last and message.get("tool_calls"):
            delta["tool_calls"] = [
                {"index": index} | call for index, call in enumerate(message["tool_calls"])
            ]
        piece = {
            "index": choice["index"],
            "delta": delta,
            "finish_reason": choice["finish_reason"] if last else None,
            "logprobs": None if content is None else {"content": content[place : place + 1]},
        }
        yield piece if ids is None else piece | {"token_ids": ids[place : place + 1]}
