"""Streams of ``TransformersEngine``: the same answers as without, each token as it is sampled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from answer_chunks import answer_from_chunks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agl.errors import InferenceError
from agl.inference.transformers import TransformersEngine
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture
async def engine(policy: Policy) -> AsyncIterator[TransformersEngine]:
    async with TransformersEngine(policy) as entered:
        yield entered


def request(text: str = "SELECT", **parameters: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 16, **parameters}


async def streamed(engine: TransformersEngine, asked: Mapping[str, Any]) -> dict[str, Any]:
    return answer_from_chunks([chunk async for chunk in engine.stream_chat(asked)])


def bare(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without what is drawn anew for each."""
    return {name: value for name, value in answer.items() if name not in ("id", "created")}


@pytest.fixture
def loop(policy: Policy) -> Iterator[tuple[asyncio.Runner, TransformersEngine]]:
    """The loop that an engine runs in, and the engine: one for all examples of a property."""
    with asyncio.Runner() as runner:
        engine = TransformersEngine(policy)
        runner.run(engine.__aenter__())
        yield runner, engine
        runner.run(engine.__aexit__(None, None, None))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 9),
    parameters=st.fixed_dictionaries(
        {"max_tokens": st.sampled_from([1, 2, 20, 40])},
        optional={
            "n": st.integers(1, 3),
            "logprobs": st.booleans(),
            "temperature": st.sampled_from([0, 0.7, 1.0]),
            "top_p": st.sampled_from([0.5, 1.0]),
            "stop": st.sampled_from(["e", ["S", "\ufffd\ufffd"], ["EL", "never"], [" "]]),
            "tools": st.just(TOOLS),
        },
    ),
)
def test_a_stream_put_together_is_the_plain_answer_of_the_same_seed(
    policy: Policy, loop: tuple[asyncio.Runner, TransformersEngine], seed: int, parameters: dict[str, Any]
):
    runner, engine = loop

    async def forget_prefixes() -> None:
        await engine.load_weights(PolicyWeights(policy_version=0, path=policy.path))

    async def both() -> None:
        asked = request(seed=seed, **parameters)
        # Alone, since neighbours in a batch change the last bits of a logprob.
        await forget_prefixes()
        plain = await engine.complete_chat(asked)
        await forget_prefixes()
        assert bare(await streamed(engine, asked)) == bare(plain)

    runner.run(both())


async def test_many_streams_at_once_are_each_their_own(engine: TransformersEngine):
    asked = [request(f"{i}", seed=i, n=1 + i % 3, temperature=0.9, max_tokens=10 + i) for i in range(16)]
    plain = await asyncio.gather(*map(engine.complete_chat, asked))
    mixed = await asyncio.gather(*(streamed(engine, one) for one in asked), *map(engine.complete_chat, asked))
    ids = [[choice["token_ids"] for choice in answer["choices"]] for answer in [*plain, *mixed]]
    assert ids[:16] == ids[16:32] == ids[32:]


async def test_tokens_arrive_while_the_answer_is_sampled(engine: TransformersEngine):
    asked = request("tell all", temperature=1, seed=3, max_tokens=200)
    chunks = [chunk async for chunk in engine.stream_chat(asked)]
    size = chunks[-1]["usage"]["completion_tokens"]
    assert size > 20
    assert len(chunks) > size / 4
    assert sum(len(chunk["choices"][0]["token_ids"]) for chunk in chunks[:-1]) == size


async def test_closing_a_stream_takes_its_rows_out_of_the_batch(policy: Policy):
    async with TransformersEngine(policy, max_batch_size=2) as engine:
        for _ in range(3):
            async with aclosing(engine.stream_chat(request(max_tokens=240, n=100))) as stream:
                assert (await anext(stream))["choices"]
        # 300 rows of up to 240 tokens would take much longer than the test may.
        assert (await engine.complete_chat(request(max_tokens=2)))["choices"]
        assert engine._running().news == {}


async def test_cancelling_whoever_reads_a_stream_makes_room(policy: Policy):
    async with TransformersEngine(policy, max_batch_size=2) as engine:
        readers = [asyncio.create_task(streamed(engine, request(max_tokens=240, n=100))) for _ in range(5)]
        await asyncio.sleep(0)  # let them reach the engine
        for reader in readers:
            reader.cancel()
        results = await asyncio.gather(*readers, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert (await engine.complete_chat(request(max_tokens=2)))["choices"]


async def test_a_refused_request_raises_before_the_first_chunk(engine: TransformersEngine):
    for wrong, match in (({"logit_bias": {"3": 1}}, "logit_bias"), ({"max_tokens": 0}, "max_tokens")):
        with pytest.raises(InferenceError, match=match) as caught:
            await anext(engine.stream_chat(request(**wrong)))
        assert caught.value.status == 400
    with pytest.raises(InferenceError, match="context length") as caught:
        await anext(engine.stream_chat(request("a b " * 5000)))
    assert caught.value.body["error"]["code"] == "context_length_exceeded"


async def test_leaving_the_engine_ends_streams_under_way(policy: Policy):
    engine = TransformersEngine(policy)
    async with engine:
        stream = engine.stream_chat(request(max_tokens=240, n=100))
        await anext(stream)
    with pytest.raises(InferenceError, match="closed") as caught:
        async for _ in stream:
            pass
    assert caught.value.status == 503
    with pytest.raises(InferenceError, match="closed"):
        await anext(engine.stream_chat(request()))


async def test_broken_weights_fail_a_stream(engine: TransformersEngine):
    model = engine._running().model
    weights = model.state_dict().items()
    bad = {name: tensor * float("nan") for name, tensor in weights if name != "lm_head.weight"}
    await engine.load_weights(PolicyWeights(policy_version=1, tensors=bad))
    with pytest.raises(InferenceError, match="policy version 1 gives NaN"):
        await streamed(engine, request())


async def test_a_stream_is_sampled_by_one_version(engine: TransformersEngine):
    tensors = {name: tensor.clone() for name, tensor in engine._running().model.state_dict().items()}
    stream = engine.stream_chat(request(max_tokens=100))
    versions = [(await anext(stream))["policy_version"]]
    swap = asyncio.create_task(engine.load_weights(PolicyWeights(policy_version=4, tensors=tensors)))
    versions += [chunk["policy_version"] async for chunk in stream]
    await swap
    assert set(versions) == {0}
    assert (await streamed(engine, request()))["policy_version"] == 4


async def test_a_prompt_is_continued_without_chat_template(engine: TransformersEngine):
    tokenizer = engine._running().tokenizer
    ids = tokenizer.encode("SELECT name")
    for prompt in ("SELECT name", ids):
        asked = {"prompt": prompt, "max_tokens": 8, "seed": 1}
        plain = await engine.complete_chat(asked)
        assert plain["prompt_token_ids"] == ids
        assert (await streamed(engine, asked))["choices"] == plain["choices"]
