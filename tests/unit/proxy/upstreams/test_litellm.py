"""What litellm is asked, and what of it the proxy sees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agl.errors import InferenceError
from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.litellm import LitellmServer
from agl.types import ModelEndpoint

NOBODY = CallContext()
CHAT = {
    "model": "judge",
    "messages": [],
    "temperature": 1.0,
    "seed": 4,
    "logprobs": True,
    "return_token_ids": True,
    "max_tokens": 5,
}


class Told:
    """An answer of litellm: a model that is dumped."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        assert exclude_none
        return dict(self.fields)


class FakeLitellm:
    """litellm's functions, as far as they are used; the provider knows ``supported`` parameters."""

    def __init__(self, *supported: str, provider: str = "anthropic") -> None:
        self.supported, self.provider = supported, provider
        self.asked: list[dict[str, Any]] = []
        self.answer: Any = Told(choices=[{"index": 0, "message": {"role": "assistant"}}])

    def get_llm_provider(self, model: str, api_base: str | None = None) -> tuple[str, str, None, None]:
        if "/" not in model:
            raise ValueError("LLM Provider NOT provided")
        return model.split("/")[1], self.provider, None, None

    def get_supported_openai_params(self, model: str, custom_llm_provider: str) -> list[str]:
        return list(self.supported)

    async def acompletion(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    atext_completion = aembedding = acompletion


class Chunks:
    """A stream of litellm; it counts when it is closed."""

    def __init__(self, *chunks: Any) -> None:
        self.chunks, self.closed = list(chunks), 0

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        if not self.chunks:
            raise StopAsyncIteration
        chunk = self.chunks.pop(0)
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    async def aclose(self) -> None:
        self.closed += 1


def server(library: FakeLitellm, **settings: Any) -> LitellmServer:
    endpoint = ModelEndpoint(
        **{"model": "judge", "upstream": "litellm", "upstream_model": "anthropic/claude"} | settings
    )
    return LitellmServer(endpoint, url="http://x", key="s3cret", library=library)


def provider_error(status: int, text: str, body: Any = None, **headers: str) -> Exception:
    error = RuntimeError(text)
    error.status_code, error.body = status, body  # type: ignore[attr-defined]
    error.response = SimpleNamespace(headers=headers)  # type: ignore[attr-defined]
    return error


async def test_litellm_is_asked_once_without_retries_and_with_the_endpoints_key():
    library = FakeLitellm("temperature", "max_tokens", "seed", "logprobs")
    answer = await server(library).complete(CHAT, NOBODY)
    (asked,) = library.asked
    assert asked == {
        "model": "anthropic/claude",
        "messages": [],
        "temperature": 1.0,
        "seed": 4,
        "logprobs": True,
        "max_tokens": 5,
        "timeout": 600.0,
        "num_retries": 0,
        "max_retries": 0,
        "drop_params": False,
        "no-log": True,
        "caching": False,
        "api_base": "http://x",
        "api_key": "s3cret",
        "stream": False,
    }
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": None}


async def test_only_what_the_proxy_added_is_left_out_for_a_provider_that_does_not_take_it():
    library = FakeLitellm("max_tokens")
    await server(library).complete(CHAT, NOBODY)
    own = CallContext(dialect=OpenAIChat(), native={"seed": 4, "logprobs": True}, forced={"temperature": 1.0})
    await server(library).complete(CHAT, own)
    added = ("temperature", "seed", "logprobs")
    assert [[name in asked for name in added] for asked in library.asked] == [[False] * 3, [True] * 3]


@pytest.mark.parametrize(
    ("provider", "wish", "asks"),
    [
        ("anthropic", None, False),
        ("hosted_vllm", None, True),
        ("hosted_vllm", False, False),
        ("openai", True, True),
    ],
)
async def test_ids_are_asked_of_vllm_and_where_the_endpoint_says_so(provider, wish, asks):
    library = FakeLitellm(provider=provider)
    await server(library, token_ids=wish).complete(CHAT, NOBODY)
    assert ("extra_body" in library.asked[0]) is asks


async def test_a_stream_ends_with_its_usage_and_is_closed():
    library = FakeLitellm()
    piece = {"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}
    library.answer = Chunks(
        Told(id="1", model="claude", choices=[piece]), Told(id="1", choices=[], usage={"total_tokens": 3})
    )
    chunks = [chunk async for chunk in server(library).stream(CHAT, NOBODY)]
    assert [chunk["choices"] for chunk in chunks] == [[piece], []]
    assert chunks[-1]["usage"] == {"total_tokens": 3}
    assert library.answer.closed == 1
    assert library.asked[0]["stream_options"] == {"include_usage": True}


async def test_a_stream_that_is_given_up_is_closed():
    library = FakeLitellm()
    library.answer = Chunks(*[Told(choices=[{"index": 0, "delta": {}}]) for _ in range(9)])
    chunks = server(library).stream(CHAT, NOBODY)
    await anext(chunks)
    await chunks.aclose()
    assert library.answer.closed == 1


@pytest.mark.parametrize(
    ("status", "retry", "sick"),
    [(400, False, False), (429, True, False), (529, True, True), (None, True, True)],
)
async def test_the_providers_failure_keeps_its_status_and_body_without_the_key(status, retry, sick):
    library = FakeLitellm()
    body = {"error": {"message": "bad key s3cret", "hints": ["s3cret"]}}
    library.answer = provider_error(status, "no: s3cret", body, **{"Retry-After": "2"})  # type: ignore[arg-type]
    with pytest.raises(UpstreamError, match=r"anthropic/claude by litellm: no: \*\*\*") as caught:
        await server(library).complete(CHAT, NOBODY)
    error = caught.value
    assert (error.status, error.retry, error.sick, error.retry_after) == (status or 502, retry, sick, 2.0)
    assert error.body == {"error": {"message": "bad key ***", "hints": ["***"]}}


async def test_a_stream_that_fails_half_way_is_an_error_and_closed():
    library = FakeLitellm()
    library.answer = Chunks(Told(choices=[{"index": 0, "delta": {}}]), provider_error(503, "gone"))
    chunks = server(library).stream(CHAT, NOBODY)
    await anext(chunks)
    with pytest.raises(UpstreamError, match="gone"):
        await anext(chunks)
    assert library.answer.closed == 1


async def test_a_model_without_provider_is_a_400_that_says_how_to_name_one():
    with pytest.raises(InferenceError, match="provider/model") as caught:
        await server(FakeLitellm(), upstream_model="claude").complete(CHAT, NOBODY)
    assert caught.value.status == 400


async def test_a_prompt_is_a_text_completion():
    library = FakeLitellm()
    library.answer = Told(choices=[{"index": 0, "text": "hi"}])
    answer = await server(library).complete({"model": "judge", "prompt": "p"}, NOBODY)
    assert answer["choices"][0]["message"]["content"] == "hi"


async def test_embeddings_are_litellms():
    library = FakeLitellm()
    library.answer = Told(data=[{"embedding": [1.0]}])
    assert await server(library).embed({"model": "judge", "input": "x"}) == {"data": [{"embedding": [1.0]}]}
    assert library.asked[0]["model"] == "anthropic/claude"


async def test_it_is_not_probed_and_takes_what_can_be_said_canonically():
    refused = CallRefusedError("x", status=400, code="x")
    asked = server(FakeLitellm())
    assert await asked.probe() is None
    assert asked.takes(NOBODY)
    assert not asked.takes(CallContext(native_only=refused))
    await asked.aclose()
