"""What the official clients can send beside text, and who may not be loaded for it: images, embeddings, litellm."""

from __future__ import annotations

import json
import subprocess
import sys

import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import NotFoundError
from served_asgi import serving_asgi
from served_proxy import ScriptedEngine, client_of, serving, spans_of

from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, SpanQuery
from agl.types import attributes as key

PNG = "iVBORw0KGgo="
DATA_URL = f"data:image/png;base64,{PNG}"
IN_CHAT = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": " look:\n"},
            {"type": "image_url", "image_url": {"url": DATA_URL}},
            {"type": "text", "text": "well?"},
        ],
    }
]
VECTOR = "AACAPwAAAEA="  # float32 1.0, 2.0


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


async def test_images_of_every_client_reach_the_model_where_they_stood(store):
    engine = ScriptedEngine()
    async with serving(store, engine) as (_, llm, attempt):
        async with client_of(llm, max_retries=0) as client:
            await client.chat.completions.create(model="policy", messages=IN_CHAT)
            parts = [
                {"type": "input_text", "text": " look:\n"},
                {"type": "input_image", "image_url": DATA_URL},
                {"type": "input_text", "text": "well?"},
            ]
            await client.responses.create(model="policy", input=[{"role": "user", "content": parts}])
        async with AsyncAnthropic(base_url=llm.anthropic_base_url, api_key=llm.api_key) as client:
            source = {"type": "base64", "media_type": "image/png", "data": PNG}
            blocks = [
                {"type": "text", "text": " look:\n"},
                {"type": "image", "source": source},
                {"type": "text", "text": "well?"},
            ]
            await client.messages.create(
                model="policy", max_tokens=9, messages=[{"role": "user", "content": blocks}]
            )
        spans = await spans_of(store, attempt)
    assert [asked["messages"] for asked in engine.requests] == [IN_CHAT] * 3
    assert [json.loads(span.attributes[key.INPUT_MESSAGES]) for span in spans] == [IN_CHAT] * 3


async def test_openais_client_embeds_at_an_endpoint_and_that_is_counted_and_not_trained_on(store):
    asked = []

    async def embedder(scope, receive, send):
        asked.append((scope["path"], orjson.loads((await receive())["body"])))
        entry = {"object": "embedding", "index": 0, "embedding": VECTOR}
        usage = {"prompt_tokens": 4, "total_tokens": 4}
        body = {"object": "list", "data": [entry], "model": "e-large", "usage": usage}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": orjson.dumps(body)})

    async with serving_asgi(embedder) as url:
        endpoint = ModelEndpoint(model="e", urls=(f"{url}/v1",), upstream_model="e-large")
        proxy = LLMProxy(endpoints={"e": endpoint}, prices={"e": {"input": 1.0, "output": 0.0}})
        async with (
            serving(store, ScriptedEngine(), proxy=proxy) as (_, llm, attempt),
            client_of(llm, max_retries=0) as client,
        ):
            answer = await client.embeddings.create(model="e", input=["hello"], dimensions=2)
            with pytest.raises(NotFoundError, match="no endpoint of the proxy serves embeddings of 'other'"):
                await client.embeddings.create(model="other", input="hello")
            query = SpanQuery(rollout_id=attempt.rollout_id, name_prefix="embeddings ")
            spans = (await store.query_spans(query)).items
    assert answer.data[0].embedding == [1.0, 2.0]
    told = {"input": ["hello"], "model": "e-large", "dimensions": 2, "encoding_format": "base64"}
    assert asked == [("/v1/embeddings", told)]
    assert [span.status.code for span in spans] == ["ok", "error"]
    assert spans[0].attributes[key.INPUT_TOKENS] == 4
    assert spans[0].attributes[key.COST_USD] == pytest.approx(4e-6)


LOADED = """
import asyncio, sys, urllib.request, json
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ProxyLLM, RolloutRequest

class Engine:
    model = "m"
    async def complete_chat(self, request):
        message = {"role": "assistant", "content": "hi"}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

def call(url):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    request = urllib.request.Request(url + "/chat/completions", body)
    return urllib.request.urlopen(request, timeout=30).status

async def main():
    async with InMemoryLightningStore() as store, LLMProxy().serving(store, Engine()) as server:
        attempt = (await store.start_rollout(RolloutRequest(task=1))).attempt
        llm = ProxyLLM(base_url=server.url, model="m").for_attempt(attempt.rollout_id, attempt.attempt_id)
        print(await asyncio.to_thread(call, llm.base_url))
        heavy = ("litellm", "torch", "transformers", "openai", "anthropic", "fastapi")
        print(sorted(name for name in heavy if name in sys.modules))

asyncio.run(main())
"""


def test_a_served_call_loads_neither_litellm_nor_any_providers_library():
    run = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=120)
    assert run.stdout.splitlines() == ["200", "[]"], run.stderr
