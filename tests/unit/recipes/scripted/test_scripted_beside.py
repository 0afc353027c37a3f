"""A policy and a scripted model in one engine: each answers under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_recipe.beside import BesideScripted

from agl.errors import ConfigError
from agl.inference.base import Engine
from agl.types import Policy

POLICY = Path(__file__).parents[4] / "recipes" / "sql" / "policy"
MESSAGES = [{"role": "user", "content": "orders(id)\nHow many orders are there?"}]


def echo(request: Mapping[str, Any], seed: str) -> dict[str, Any]:
    return {"content": f"scripted: {request['messages'][-1]['content'][:6]}"}


async def test_each_model_answers_under_its_own_name_whole_and_in_chunks() -> None:
    async with BesideScripted(Policy(path=str(POLICY)), script=echo) as engine:
        assert isinstance(engine, Engine)
        assert (engine.model, engine.trainable) == ("policy", True)
        scripted = await engine.complete_chat({"model": "optimizer", "messages": MESSAGES})
        assert scripted["choices"][0]["message"]["content"] == "scripted: orders"
        own = await engine.complete_chat({"model": "policy", "messages": MESSAGES, "max_tokens": 4})
        assert own["model"] == "policy"
        assert 0 < len(own["choices"][0]["token_ids"]) <= 4
        for model in ("optimizer", "policy"):
            request = {"model": model, "messages": MESSAGES, "max_tokens": 4}
            chunks = [chunk async for chunk in engine.stream_chat(request)]
            assert {chunk["model"] for chunk in chunks} == {model}


def test_the_scripted_model_needs_a_name_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"inference\.script_model=policy is the policy's name"):
        BesideScripted(Policy(path=str(POLICY)), script=echo, script_model="policy")
