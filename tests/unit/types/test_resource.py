"""Resources: told apart by their kind, checked as such, and any other JSON as it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from agl.types import LLM, ModelEndpoint, NamedResources, PromptTemplate, ProxyLLM, Resource, Weights
from agl.types.tokens import scoped_token

RESOURCE: TypeAdapter[Any] = TypeAdapter(Resource)


@pytest.mark.parametrize(
    "resource",
    [
        LLM(base_url="http://x/v1", model="m", sampling={"temperature": 0}),
        ProxyLLM(base_url="http://x", model="m", policy_version=3),
        ModelEndpoint(model="judge", urls=("http://x/v1", "http://y/v1"), agents=("critic",), modes=("val",)),
        PromptTemplate(template="Say {word}"),
        Weights(path="/w", policy_version=1),
        {"any": ["json", 1, None]},
        "text",
        None,
    ],
)
def test_a_resource_survives_json(resource: Any) -> None:
    again = RESOURCE.validate_json(RESOURCE.dump_json(resource))
    assert again == resource
    assert type(again) is type(resource)


def test_a_known_kind_is_checked_as_such() -> None:
    with pytest.raises(ValidationError):
        RESOURCE.validate_python({"kind": "llm", "base_url": "x"})
    with pytest.raises(ValidationError):
        RESOURCE.validate_python({"kind": "weights", "path": "x", "paht": "y"})


def test_another_kind_is_any_json() -> None:
    assert RESOURCE.validate_python({"kind": "soup"}) == {"kind": "soup"}


def test_each_attempt_gets_an_address_of_its_own() -> None:
    proxy = ProxyLLM(base_url="http://127.0.0.1:4000/", model="policy", api_key="k", sampling={"top_p": 1})
    assert proxy.for_attempt("ro-1", "at-2") == LLM(
        base_url="http://127.0.0.1:4000/rollout/ro-1/attempt/at-2/v1",
        model="policy",
        api_key=scoped_token("k", "ro-1", "at-2"),
        sampling={"top_p": 1},
    )


def test_a_key_that_is_already_an_attempts_stays_and_no_key_stays_none() -> None:
    own = scoped_token("k", "ro-1", "at-2")
    narrowed = ProxyLLM(base_url="http://x", model="m", api_key=own)
    assert narrowed.for_attempt("ro-1", "at-2").api_key == own
    assert ProxyLLM(base_url="http://x", model="m").for_attempt("ro-1", "at-2").api_key == "none"


@pytest.mark.parametrize("root", ["http://127.0.0.1:1/rollout/r/attempt/a", "https://api.example"])
def test_anthropics_clients_get_the_address_without_the_version(root: str) -> None:
    assert LLM(base_url=f"{root}/v1", model="m").anthropic_base_url == root
    assert LLM(base_url=f"{root}/v1/", model="m").anthropic_base_url == root


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(LLM(base_url="x", model="m", api_key="secret"))


def test_a_template_is_filled_in_and_misses_nothing() -> None:
    template = PromptTemplate(template="Say {word} twice: {word}")
    assert template.format(word="hi") == "Say hi twice: hi"
    with pytest.raises(KeyError, match="word"):
        template.format(other="hi")


def test_a_version_is_frozen_and_refuses_unknown_fields() -> None:
    version = NamedResources(resources_id="r", version=1, resources={"a": 1}, created_at=0.0)
    with pytest.raises(ValidationError):
        version.version = 2  # type: ignore[misc]
    with pytest.raises(ValidationError):
        NamedResources.model_validate({**version.model_dump(), "extra": 1})


def test_ids_with_odd_characters_are_quoted_in_the_address() -> None:
    proxy = ProxyLLM(base_url="http://127.0.0.1:1/", model="policy")
    assert (
        proxy.for_attempt("a#b/c d", "at").base_url
        == "http://127.0.0.1:1/rollout/a%23b%2Fc%20d/attempt/at/v1"
    )
