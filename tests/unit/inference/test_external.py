import inspect
import logging
from pathlib import Path

import httpx
import pytest
import yaml
from model_network import CUT, SILENT, ModelNetwork

from agl.errors import ConfigError, InferenceError
from agl.inference.base import Engine
from agl.inference.external import ExternalEngine
from agl.types import PolicyWeights

KEY = "sk-secret-0123456789"
CHAT = {
    "model": "gpt",
    "messages": [{"role": "user", "content": "hello"}],
    "logprobs": True,
    "top_logprobs": 2,
    "return_token_ids": True,
}
ANSWER = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
}


@pytest.fixture
def server(monkeypatch):
    network = ModelNetwork([httpx.Response(200, json=ANSWER)])
    network.install(monkeypatch)
    return network


def engine_of(**settings):
    return ExternalEngine("http://model.test/v1/", "gpt", **settings)


async def test_a_call_is_forwarded_and_its_answer_returned(server):
    async with engine_of() as engine:
        assert isinstance(engine, Engine)
        assert await engine.complete_chat(CHAT) == ANSWER
    (request,) = server.requests
    assert str(request.url) == "http://model.test/v1/chat/completions"
    assert "authorization" not in request.headers
    asked = {name: value for name, value in CHAT.items() if name != "return_token_ids"}
    assert server.bodies[0] == asked | {"stream": False}


async def test_token_ids_are_asked_for_where_the_server_knows_them(server):
    async with engine_of(ask_for_token_ids=True) as engine:
        await engine.complete_chat(CHAT)
    assert server.bodies[0] == CHAT | {"stream": False}


async def test_logprobs_that_the_server_refuses_are_not_asked_for_again(server):
    refusal = httpx.Response(400, json={"error": {"message": "logprobs are not supported"}})
    server.answers = [refusal, httpx.Response(200, json=ANSWER)]
    async with engine_of() as engine:
        for _ in range(2):
            assert await engine.complete_chat(CHAT) == ANSWER
    assert ["logprobs" in body for body in server.bodies] == [True, False, False]


async def test_logprobs_can_be_left_out_for_models_that_refuse_them(server):
    async with engine_of(ask_for_logprobs=False) as engine:
        await engine.complete_chat(CHAT)
    assert set(server.bodies[0]) == {"model", "messages", "stream"}


async def test_the_key_comes_from_the_environment_and_shows_up_nowhere_else(server, monkeypatch, caplog):
    monkeypatch.setenv("MODEL_KEY", KEY)
    server.answers = [httpx.Response(401, json={"error": {"message": f"wrong key {KEY}"}})]
    with caplog.at_level(logging.DEBUG):
        async with engine_of(api_key_env="MODEL_KEY") as engine:
            with pytest.raises(InferenceError) as caught:
                await engine.complete_chat(CHAT)
            assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
            assert KEY not in repr(engine)
    assert caught.value.status == 401
    assert caught.value.body == {"error": {"message": "wrong key ***"}}
    assert KEY not in str(caught.value) + caplog.text


@pytest.mark.parametrize("value", [None, "", "  ", "ké", "two\nlines"])
async def test_a_missing_or_broken_key_stops_at_the_start(monkeypatch, value):
    monkeypatch.delenv("MODEL_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MODEL_KEY", value)
    with pytest.raises(ConfigError, match="MODEL_KEY"):
        async with engine_of(api_key_env="MODEL_KEY"):
            pass


async def test_the_servers_error_keeps_its_status_and_body(server):
    body = {"error": {"message": "slow down", "type": "rate_limit", "param": None, "code": "rate_limit"}}
    server.answers = [httpx.Response(429, json=body)]
    async with engine_of() as engine:
        with pytest.raises(InferenceError, match="HTTP 429") as caught:
            await engine.complete_chat(CHAT)
    assert (caught.value.status, caught.value.body) == (429, body)


async def test_an_error_in_text_keeps_its_text(server):
    server.answers = [httpx.Response(503, text="<html>busy</html>")]
    async with engine_of() as engine:
        with pytest.raises(InferenceError) as caught:
            await engine.complete_chat(CHAT)
    assert (caught.value.status, caught.value.body) == (503, "<html>busy</html>")


@pytest.mark.parametrize(
    "answer", [httpx.Response(200, text="not json"), httpx.Response(200, json=[1]), httpx.Response(302)]
)
async def test_an_answer_that_is_no_json_object_is_a_502(server, answer):
    server.answers = [answer]
    async with engine_of() as engine:
        with pytest.raises(InferenceError, match=r"http://model\.test/v1") as caught:
            await engine.complete_chat(CHAT)
    assert caught.value.status == 502


@pytest.mark.parametrize(
    ("failure", "status"),
    [(OSError("refused"), 502), (CUT, 502), (SILENT, 504)],
)
async def test_a_server_out_of_reach_is_named(server, failure, status):
    server.answers = [failure]
    async with engine_of(timeout_seconds=0.01) as engine:
        with pytest.raises(InferenceError, match=r"http://model\.test/v1 ") as caught:
            await engine.complete_chat(CHAT)
    assert caught.value.status == status


async def test_it_cannot_be_trained():
    engine = engine_of()
    assert (engine.trainable, engine.policy_version, engine.model) == (False, 0, "gpt")
    with pytest.raises(ConfigError, match="train with another engine"):
        await engine.load_weights(PolicyWeights(policy_version=1))


async def test_a_call_outside_its_block_is_refused():
    with pytest.raises(InferenceError, match="not open"):
        await engine_of().complete_chat(CHAT)


@pytest.mark.parametrize(
    "base_url", ["", "api.openai.com/v1", "ftp://x/v1", "http://", "http://x/v1?key=1", "http://user:pw@x/v1"]
)
def test_a_wrong_base_url_is_refused_without_repeating_a_password(base_url):
    with pytest.raises(ConfigError, match=r"inference\.base_url") as caught:
        ExternalEngine(base_url, "gpt")
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"), [("timeout_seconds", 0.0), ("connect_seconds", -1.0), ("max_connections", 0)]
)
def test_a_wrong_setting_is_named(setting, value):
    with pytest.raises(ConfigError, match=rf"inference\.{setting}"):
        engine_of(**{setting: value})


def test_the_settings_file_repeats_the_defaults():
    node = yaml.safe_load(Path("configs/inference/external.yaml").read_text())
    assert node.pop("_target_") == "agl.inference.external.ExternalEngine"
    parameters = inspect.signature(ExternalEngine).parameters
    assert list(node) == list(parameters)
    assert all(
        node[name] == ("???" if item.default is inspect.Parameter.empty else item.default)
        for name, item in parameters.items()
    )


async def test_a_prompt_goes_to_text_completions(server):
    text = {"object": "text_completion", "choices": [{"index": 0, "text": "1", "finish_reason": "stop"}]}
    server.answers = [httpx.Response(200, json=text)]
    async with engine_of() as engine:
        answer = await engine.complete_chat({"model": "gpt", "prompt": "SELECT"})
    assert answer["choices"][0]["message"]["content"] == "1"
    assert str(server.requests[0].url) == "http://model.test/v1/completions"
