"""Resources: a named, immutable, numbered set of what an agent uses."""

from __future__ import annotations

from typing import Annotated, Literal, cast
from urllib.parse import quote

from pydantic import Discriminator, Field, Tag

from agl.types.record import Json, Record


class LLM(Record):
    """A model behind an OpenAI-compatible URL."""

    kind: Literal["llm"] = "llm"
    base_url: str
    model: str
    api_key: str = Field(default="none", repr=False)
    sampling: dict[str, Json] = Field(default_factory=dict)
    """Request parameters of every call (temperature, top_p, max_tokens, ...)."""


class ProxyLLM(Record):
    """The policy behind agl's proxy; each attempt gets a base URL of its own."""

    kind: Literal["proxy_llm"] = "proxy_llm"
    base_url: str
    """The proxy's root, e.g. ``http://127.0.0.1:40001``."""
    model: str
    api_key: str = Field(default="none", repr=False)
    sampling: dict[str, Json] = Field(default_factory=dict)
    """The proxy forces these on every call, whatever the agent asks for."""
    policy_version: int = 0

    def for_attempt(self, rollout_id: str, attempt_id: str) -> LLM:
        """Return the LLM that the agent of this attempt talks to."""
        root = self.base_url.rstrip("/")
        url = f"{root}/rollout/{quote(rollout_id, safe='')}/attempt/{quote(attempt_id, safe='')}/v1"
        return LLM(base_url=url, model=self.model, api_key=self.api_key, sampling=self.sampling)


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
