"""Routes by model, agent and mode; the first match decides, and others of its model stand behind it."""

from __future__ import annotations

import pytest

from agl.errors import ConfigError
from agl.proxy.routing.table import RouteTable
from agl.types import ModelEndpoint


def table(**endpoints):
    return RouteTable({name: ModelEndpoint(urls=("http://x/v1",), **own) for name, own in endpoints.items()})


def test_a_call_goes_to_the_endpoint_of_the_model_it_names():
    routes = table(judge={"model": "gpt"}, policy={"model": "qwen"})
    assert routes.route("qwen", agent=None, mode=None) == ["policy"]
    assert routes.model_of_call("qwen", agent=None, mode="train") == "qwen"
    assert routes.route("other", agent=None, mode=None) == []
    assert routes.model_of_call("other", agent=None, mode=None) is None


def test_endpoints_of_one_model_are_each_others_fallbacks_by_priority():
    routes = table(
        last={"model": "m", "priority": -1},
        second={"model": "m"},
        other={"model": "x"},
        first={"model": "m", "priority": 5},
    )
    assert routes.route("m", agent=None, mode=None) == ["first", "second", "last"]


@pytest.mark.parametrize(
    ("agent", "route"),
    [("critic", ["judge"]), ("judge-7", ["judge"]), ("critics", ["policy"]), (None, ["policy"])],
)
def test_an_agent_is_named_exactly_or_by_a_regular_expression(agent, route):
    routes = table(judge={"model": "gpt", "agents": ("critic", r"judge-\d")}, policy={"model": "m"})
    assert routes.route("m", agent=agent, mode=None) == route


def test_a_route_by_agent_turns_the_call_into_one_of_the_endpoints_model():
    routes = table(
        judge={"model": "gpt", "agents": ("critic",)},
        policy={"model": "m"},
        spare={"model": "gpt", "priority": -1},
    )
    assert routes.model_of_call("m", agent="critic", mode="val") == "gpt"
    assert routes.route("m", agent="critic", mode="val") == ["judge", "spare"]
    assert routes.route("gpt", agent="critic", mode="val") == [
        "judge",
        "spare",
    ]  # what is asked of the router then


def test_an_endpoint_can_be_of_some_modes_only():
    routes = table(
        evaluation={"model": "m", "modes": ("val", "test"), "priority": 1}, training={"model": "m"}
    )
    assert routes.route("m", agent=None, mode="train") == ["training"]
    assert routes.route("m", agent=None, mode="val") == ["evaluation", "training"]


def test_a_star_stands_for_any_text_and_the_call_keeps_its_name():
    routes = table(any={"model": "openai/*"})
    assert routes.model_of_call("openai/gpt-5", agent=None, mode=None) == "openai/gpt-5"
    assert routes.model_of_call("azure/gpt-5", agent=None, mode=None) is None
    assert routes.models == []


def test_a_model_is_no_regular_expression():
    assert table(a={"model": "q.en"}).route("qwen", agent=None, mode=None) == []


def test_a_withdrawn_endpoint_takes_nothing_and_is_not_listed():
    routes = table(gone={"model": "m", "withdrawn": True}, here={"model": "n"})
    assert routes.route("m", agent=None, mode=None) == []
    assert routes.models == ["n"]


def test_a_broken_regular_expression_names_its_endpoint():
    with pytest.raises(ConfigError, match="endpoint judge: agents"):
        table(judge={"model": "m", "agents": ("(",)})


def test_names_that_clients_make_up_are_not_kept_for_ever():
    routes = table(policy={"model": "m*"})
    for number in range(3000):
        assert routes.route(f"m{number}", agent=None, mode=None) == ["policy"]
    assert len(routes._found) <= 1024
