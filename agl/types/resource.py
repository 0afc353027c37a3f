"""Resources: a named, immutable, numbered set of what an agent uses."""

from __future__ import annotations

from typing import Annotated, Literal, cast
from urllib.parse import quote

from pydantic import Discriminator, Field, Tag

from agl.types.prompt import PromptTemplate
from agl.types.record import Json, Record
from agl.types.rollout import Mode
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


class ModelEndpoint(Record):
    """A model that agl's proxy sends calls to, behind one or more equal servers.

    The proxy follows the store: the endpoints of the newest resources version that has any are those in force.
    """

    kind: Literal["model_endpoint"] = "model_endpoint"
    model: str
    """What calls name it; ``*`` stands for any text. Endpoints of one model are each other's fallbacks."""
    upstream: Literal["openai", "litellm", "anthropic", "responses", "engine"] = "openai"
    """What the servers speak; ``litellm`` is whatever that library reaches, ``engine`` the proxy's own engine."""
    urls: tuple[str, ...] = ()
    """Base URLs up to and including the version, e.g. ``http://gpu1:8000/v1``: equal servers that share the calls."""
    upstream_model: str | None = None
    """What the servers name it; None: as the call does."""
    api_key_env: str | None = None
    """The proxy's environment variable that holds the servers' API key; never the key itself."""
    agents: tuple[str, ...] = ()
    """Names or regular expressions: takes every call of these agents, whatever model it names."""
    modes: tuple[Mode, ...] = ()
    """Takes calls of rollouts of these modes only; empty: of all."""
    priority: int = 0
    """Of the endpoints that take a call the highest comes first, then in the order of their names' listing."""
    policy_version: int | None = None
    """Of the weights that the servers hold, where they do not say it themselves."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Calls to one server at once; more wait."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """The longest wait for an answer, or for a stream's next piece."""
    connect_seconds: float = Field(default=10.0, gt=0)
    token_ids: bool | None = None
    """Whether to ask for vLLM's ``return_token_ids``; None: ask until the server refuses it."""
    logprobs: bool | None = None
    """Whether to ask for logprobs that the client did not ask for; None: ask until the server refuses it."""
    withdrawn: bool = False
    """Takes no calls. A version with nothing but withdrawn endpoints leaves the proxy with its settings alone."""


class Weights(Record):
    """A policy's weights on disk."""

    kind: Literal["weights"] = "weights"
    path: str
    policy_version: int = 0


_KINDS = ("llm", "proxy_llm", "model_endpoint", "prompt_template", "weights")


def _kind(value: object) -> str:
    kind = (
        cast("dict[str, object]", value).get("kind")
        if isinstance(value, dict)
        else getattr(value, "kind", None)
    )
    return kind if isinstance(kind, str) and kind in _KINDS else "json"


Resource = Annotated[
    Annotated[LLM, Tag("llm")]
    | Annotated[ProxyLLM, Tag("proxy_llm")]
    | Annotated[ModelEndpoint, Tag("model_endpoint")]
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
