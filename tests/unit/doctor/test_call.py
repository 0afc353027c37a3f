"""The call through the proxy: the engine that stands in for a model. Calls over HTTP: see the integration tests."""

from __future__ import annotations

from agl.doctor.call import EchoEngine
from agl.inference.base import Engine


async def test_the_echo_answers_one_word_with_ids_and_logprobs() -> None:
    engine = EchoEngine()
    assert isinstance(engine, Engine)
    async with engine:
        answer = await engine.complete_chat({"messages": []})
        assert [chunk async for chunk in engine.stream_chat({"messages": []})] == []
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "word"
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == 2
    assert answer["usage"]["total_tokens"] == len(answer["prompt_token_ids"]) + len(choice["token_ids"])
