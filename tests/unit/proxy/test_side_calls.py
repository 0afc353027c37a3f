import orjson
import pytest
from anthropic.types import ModelInfo

from agl.errors import InferenceError
from agl.proxy.refusal import CallRefusedError
from agl.proxy.side_calls import (
    anthropic_models,
    embedded,
    model_names,
    num_prompt_tokens,
    openai_models,
)
from agl.proxy.upstream import CallContext
from agl.types import ProxyLLM

REQUEST = {"model": "policy", "messages": [], "max_completion_tokens": 100, "n": 3}


class Routed:
    """An upstream that chooses: it knows two models, and whose call it is."""

    model, models = "policy", ("policy", "judge")

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def model_of_call(self, model, *, agent, mode):
        raise NotImplementedError

    async def complete_chat(self, request, *, context=None):
        self.asked.append((request, context))
        return self.answer

    def stream_chat(self, request, *, context=None):
        raise NotImplementedError

    async def embed(self, body, *, context=None):
        self.asked.append((body, context))
        return self.answer

    async def count_tokens(self, request, *, context=None):
        return self.answer.get("counted")


class Counter:
    model = "policy"

    async def count_tokens(self, request):
        return len(request["messages"])


def test_models_are_those_of_the_upstream_and_of_the_resources(upstream, resources_of):
    resources = resources_of(
        ProxyLLM(base_url="http://x", model="policy"),
        other=ProxyLLM(base_url="http://x", model="old"),
        text="x",
    )
    assert model_names(upstream, resources) == ["policy", "old"]
    assert model_names(Routed({}), None) == ["policy", "judge"]


def test_lists_of_models_have_their_clients_shape():
    listed = orjson.loads(openai_models(["a", "b"]))
    assert listed["object"] == "list"
    assert listed["data"][1] == {"id": "b", "object": "model", "created": 0, "owned_by": "agl"}
    listed = orjson.loads(anthropic_models(["a", "b"]))
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "b", False)
    assert ModelInfo.model_validate(listed["data"][0]).id == "a"
    assert orjson.loads(anthropic_models([]))["first_id"] is None


async def test_an_upstream_that_chooses_embeds(upstream):
    routed, context = Routed({"data": []}), CallContext(rollout_id="r1")
    assert await embedded(routed, {"model": "e"}, context) == {"data": []}
    assert routed.asked == [({"model": "e"}, context)]
    with pytest.raises(CallRefusedError, match="no embeddings"):
        await embedded(upstream, {"model": "e"}, context)


async def test_an_upstream_that_counts_is_asked_to():
    assert await num_prompt_tokens(Counter(), {"messages": [1, 2]}, CallContext()) == 2
    routed = Routed({"counted": 0})
    assert await num_prompt_tokens(routed, REQUEST, CallContext()) == 0
    assert routed.asked == []


async def test_an_upstream_that_cannot_count_samples_one_token_and_says_its_usage(upstream):
    assert await num_prompt_tokens(upstream, REQUEST, CallContext()) == 3
    assert upstream.requests == [{"model": "policy", "messages": [], "max_tokens": 1, "n": 1}]
    routed = Routed({"usage": {"prompt_tokens": 8}})
    context = CallContext(agent="a", native={"model": "policy"})
    assert await num_prompt_tokens(routed, REQUEST, context) == 8
    assert routed.asked[0][1] == CallContext(agent="a", native={"model": "policy", "max_tokens": 1})


async def test_an_upstream_that_does_not_say_its_usage_has_failed():
    with pytest.raises(InferenceError, match="how many tokens"):
        await num_prompt_tokens(Routed({"usage": None}), REQUEST, CallContext())
