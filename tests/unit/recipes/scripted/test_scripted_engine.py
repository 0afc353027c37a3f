"""The scripted engine speaks OpenAI's wire format, and the same request gets the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scripted_recipe.engine import ScriptedEngine, num_tokens

from agl.errors import ConfigError, InferenceError
from agl.inference.base import Engine
from agl.types import PolicyWeights

MESSAGES = [{"role": "user", "content": "Hello"}]


def echo(request: Mapping[str, Any], seed: str) -> dict[str, Any]:
    return {"content": f"{request['messages'][-1]['content']} {seed}"}


def calling(request: Mapping[str, Any], seed: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}


def test_it_is_an_engine_without_weights() -> None:
    engine = ScriptedEngine(echo)
    assert isinstance(engine, Engine)
    assert (engine.model, engine.policy_version, engine.trainable) == ("scripted", 0, False)


async def test_an_answer_has_the_wire_format_and_a_usage() -> None:
    answer = await ScriptedEngine(echo, seed=7).complete_chat({"messages": MESSAGES, "model": "scripted"})
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello 7/0"}
    assert choice["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0


async def test_chance_follows_the_requests_seed_only_above_temperature_0() -> None:
    engine = ScriptedEngine(echo)
    cold = await engine.complete_chat({"messages": MESSAGES, "seed": 5, "temperature": 0})
    warm = await engine.complete_chat({"messages": MESSAGES, "seed": 5, "temperature": 1})
    again = await engine.complete_chat({"messages": MESSAGES, "seed": 5, "temperature": 1})
    assert cold["choices"][0]["message"]["content"] == "Hello 0/0"
    assert warm == again
    assert warm["choices"][0]["message"]["content"] == "Hello 0/5"


async def test_an_answer_beyond_max_tokens_is_cut_and_says_so() -> None:
    answer = await ScriptedEngine(echo).complete_chat({"messages": MESSAGES, "max_tokens": 1})
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hell", "length")


async def test_calls_of_tools_are_told_and_streamed() -> None:
    engine = ScriptedEngine(calling)
    answer = await engine.complete_chat({"messages": MESSAGES})
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    chunks = [chunk async for chunk in engine.stream_chat({"messages": MESSAGES})]
    (delta,) = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert delta["tool_calls"][0]["index"] == 0
    assert chunks[-1]["usage"] == answer["usage"]


async def test_what_it_cannot_do_is_refused() -> None:
    engine = ScriptedEngine(echo)
    with pytest.raises(InferenceError, match="'gpt' does not exist"):
        await engine.complete_chat({"messages": MESSAGES, "model": "gpt"})
    with pytest.raises(ConfigError, match="no weights"):
        await engine.load_weights(PolicyWeights(policy_version=1, tensors={}))
    with pytest.raises(ConfigError, match="seconds_per_call"):
        ScriptedEngine(echo, seconds_per_call=-1)


def test_four_characters_are_a_token() -> None:
    assert [num_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]
