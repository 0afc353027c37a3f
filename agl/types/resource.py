"""Resources: a named, immutable, numbered set of what an agent uses."""

from __future__ import annotations

from typing import Annotated, Literal, cast
from urllib.parse import quote

from pydantic import Discriminator, Field, Tag

from agl.types.record import Json, Record
from agl.types.tokens import is_scoped, scoped_token

NO_KEY = "none"
"""The key of a server that asks for none; clients refuse an empty one."""


class LLM(Record):
    """A model behind an OpenAI-compatible URL."""

    kind: Literal["llm"] = "llm"
    base_url: str
    """Up to and including the version, as OpenAI's clients take it."""
    model: str
    api_key: str = Field(default=NO_KEY, repr=False)
    sampling: dict[str, Json] = Field(default_factory=dict)
    """Request parameters of every call (temperature, top_p, max_tokens, ...)."""

    @property
    def anthropic_base_url(self) -> str:
        """The base URL as Anthropic's clients take it: they add the version themselves."""
        return self.base_url.rstrip("/").removesuffix("/v1")


class ProxyLLM(Record):
    """The policy behind agl's proxy; each attempt gets a base URL of its own."""

    kind: Literal["proxy_llm"] = "proxy_llm"
    base_url: str
    """The proxy's root, e.g. ``http://127.0.0.1:40001``."""
    model: str
    api_key: str = Field(default=NO_KEY, repr=False)
    """The proxy's secret, of which the keys of attempts are made; never given to an agent."""
    sampling: dict[str, Json] = Field(default_factory=dict)
    """The proxy forces these on every call, whatever the agent asks for."""
    policy_version: int = 0

    def for_attempt(self, rollout_id: str, attempt_id: str) -> LLM:
        """Return the LLM that the agent of this attempt talks to."""
        root = self.base_url.rstrip("/")
        url = f"{root}/rollout/{quote(rollout_id, safe='')}/attempt/{quote(attempt_id, safe='')}/v1"
        key = self.key_of_attempt(rollout_id, attempt_id)
        return LLM(base_url=url, model=self.model, api_key=key, sampling=self.sampling)

    def key_of_attempt(self, rollout_id: str, attempt_id: str) -> str:
        """Return the key that the proxy takes from this attempt alone, ``none`` where it asks for no key."""
        if self.api_key == NO_KEY or is_scoped(self.api_key):
            return self.api_key
        return scoped_token(self.api_key, rollout_id, attempt_id)


class PromptTemplate(Record):
    """A prompt with placeholders."""

    kind: Literal["prompt_template"] = "prompt_template"
    template: str
    engine: Literal["f-string"] = "f-string"

    def format(self, **values: object) -> str:
        """Return the prompt with every ``{name}`` replaced; KeyError for a missing name."""
        return self.template.format(**values)


class Weights(Record):
    """A policy's weights on disk."""

    kind: Literal["weights"] = "weights"
    path: str
    policy_version: int = 0


def _kind(value: object) -> str:
    kind = (
        cast("dict[str, object]", value).get("kind")
        if isinstance(value, dict)
        else getattr(value, "kind", None)
    )
    return (
        kind
        if isinstance(kind, str) and kind in ("llm", "proxy_llm", "prompt_template", "weights")
        else "json"
    )


Resource = Annotated[
    Annotated[LLM, Tag("llm")]
    | Annotated[ProxyLLM, Tag("proxy_llm")]
    | Annotated[PromptTemplate, Tag("prompt_template")]
    | Annotated[Weights, Tag("weights")]
    | Annotated[Json, Tag("json")],
    Discriminator(_kind),
]
"""A known kind, told by its ``kind`` key (and then checked as such), or any JSON value."""


class NamedResources(Record):
    """One immutable version of everything the agent is given by name."""

    resources_id: str
    version: int
    """1, 2, ... within the store."""
    run_id: str | None = None
    resources: dict[str, Resource]
    created_at: float
