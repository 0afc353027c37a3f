"""What an endpoint's settings make, and what in them is refused before any call."""

from __future__ import annotations

import random
import time

import pytest

from agl.errors import ConfigError
from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.routing.engine import EngineServer
from agl.proxy.routing.opening import opened
from agl.proxy.upstream import CallContext
from agl.types import ModelEndpoint


class Engine:
    model = "policy"

    async def complete_chat(self, request):
        return {"engine": request["model"]}

    async def stream_chat(self, request):
        yield {"engine": request["model"]}


def open_one(engine=None, **settings):
    return opened("judge", ModelEndpoint(**{"model": "m"} | settings), engine=engine, rng=random.random)


def test_each_url_is_a_server():
    assert [replica.name for replica in open_one(urls=("http://a/v1/", "http://b/v1")).replicas] == [
        "http://a/v1",
        "http://b/v1",
    ]


def test_a_server_of_responses_takes_calls_of_its_format_alone_and_anthropics_all():
    target = open_one(upstream="responses", urls=("http://a/v1",))
    assert target.takes(CallContext(dialect=OpenAIResponses()))
    assert not target.takes(CallContext())
    target = open_one(upstream="anthropic", urls=("http://a/v1",))
    assert target.takes(CallContext(dialect=AnthropicMessages()))
    assert target.takes(CallContext())


async def test_the_engine_can_be_a_server_of_a_route_and_is_not_closed_with_it():
    engine = EngineServer(Engine(), clock=time.monotonic)
    target = open_one(engine, upstream="engine")
    assert [replica.server for replica in target.replicas] == [engine]
    await target.aclose()
    assert await engine.complete({"model": "m"}, CallContext()) == {"engine": "m"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "urls: the base URL"),
        ({"urls": ("gpu:8000",)}, "urls=gpu:8000"),
        ({"urls": ("http://a/v1", "http://a/v1/")}, "twice"),
        ({"urls": ("http://a/v1",), "api_key_env": "NOT_SET_ANYWHERE"}, "api_key_env=NOT_SET_ANYWHERE"),
        ({"upstream": "engine"}, "has no engine"),
        ({"upstream": "litellm", "urls": ("x",)}, "urls=x"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_the_endpoints_name(settings, words):
    with pytest.raises(ConfigError, match=f"endpoint judge.*{words}"):
        open_one(**settings)


def test_an_engine_takes_no_urls():
    with pytest.raises(ConfigError, match="takes no urls"):
        open_one(Engine(), upstream="engine", urls=("http://a/v1",))
