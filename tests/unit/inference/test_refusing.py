"""An engine without a model."""

import pytest

from agl.errors import InferenceError
from agl.inference.base import Engine
from agl.inference.refusing import RefusingEngine
from agl.types import Weights


async def test_every_call_is_refused_and_counted() -> None:
    async with RefusingEngine(model="m", policy_version=3, why="all answers are recorded") as engine:
        assert isinstance(engine, Engine)
        assert (engine.model, engine.policy_version, engine.trainable) == ("m", 3, False)
        with pytest.raises(InferenceError, match="all answers are recorded") as refused:
            await engine.complete_chat({"messages": []})
        with pytest.raises(InferenceError):
            await anext(engine.stream_chat({"messages": []}))
        with pytest.raises(InferenceError, match="no weights can be loaded"):
            await engine.load_weights(Weights(path="p"))
    assert (refused.value.status, engine.num_calls) == (409, 2)
