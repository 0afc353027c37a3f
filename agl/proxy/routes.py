"""Routes: whose call a URL names and what it asks for.

The base URL that an agent gets is its identity: ``/rollout/{id}/attempt/{id}[/agent/{name}]/v1``. OpenAI's clients are
given it whole, Anthropic's without ``/v1``, which they add themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import unquote

from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.base import Dialect, Memory
from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.dialects.openai_completions import OpenAICompletions
from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.dialects.responses.memory import ResponseMemory
from agl.proxy.refusal import CallRefusedError

Endpoint = Literal["chat", "completions", "responses", "messages", "count_tokens", "embeddings", "models"]
_SHAPE = "/rollout/{rollout_id}/attempt/{attempt_id}[/agent/{name}]/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An endpoint, where it is, and the wire format it speaks.

    Args:
        endpoint: its name.
        method: the HTTP method.
        path: the segments behind ``/v1``.
        dialect: of its requests, answers and errors.
        new_memory: what the dialect keeps of an attempt's calls.
    """

    endpoint: Endpoint
    method: str
    path: tuple[str, ...]
    dialect: Dialect
    new_memory: Callable[[], Memory] | None = None


ROUTES = (
    Route(endpoint="chat", method="POST", path=("chat", "completions"), dialect=OpenAIChat()),
    Route(endpoint="completions", method="POST", path=("completions",), dialect=OpenAICompletions()),
    Route(
        endpoint="responses",
        method="POST",
        path=("responses",),
        dialect=OpenAIResponses(),
        new_memory=ResponseMemory,
    ),
    Route(endpoint="messages", method="POST", path=("messages",), dialect=AnthropicMessages()),
    Route(
        endpoint="count_tokens", method="POST", path=("messages", "count_tokens"), dialect=AnthropicMessages()
    ),
    Route(endpoint="embeddings", method="POST", path=("embeddings",), dialect=OpenAIChat()),
    Route(endpoint="models", method="GET", path=("models",), dialect=OpenAIChat()),
)
_MAX_KNOWN_BYTES = 500
"""Of a path that is remembered; usual ones have about 100."""
_BY_PATH = {route.path: route for route in ROUTES}


class Address(NamedTuple):
    """What a request's path says: the attempt, the agent and the endpoint. A tuple, for it is a key of each call."""

    rollout_id: str
    attempt_id: str
    agent: str | None
    endpoint: Endpoint


def address_from_path(method: str, raw_path: bytes) -> tuple[Address, Route]:
    """Return what the path names. Segments are percent-decoded one by one, so that ids may hold any character.

    Raises:
        CallRefusedError: 404 for a path that names no attempt or endpoint, 405 for the wrong method.
    """
    if len(raw_path) > _MAX_KNOWN_BYTES:
        return _named(method, raw_path)
    return _known(method, raw_path)


@lru_cache(maxsize=4096)
def _known(method: str, raw_path: bytes) -> tuple[Address, Route]:
    """An attempt's calls have one path."""
    return _named(method, raw_path)


def _named(method: str, raw_path: bytes) -> tuple[Address, Route]:
    segments = raw_path.decode("ascii", "replace").split("/")
    if b"%" in raw_path:
        segments = [unquote(part) for part in segments]
    match segments:
        case ["", "rollout", rollout_id, "attempt", attempt_id, "agent", agent, "v1", *rest]:
            found = _address(rollout_id, attempt_id, agent, rest)
        case ["", "rollout", rollout_id, "attempt", attempt_id, "v1", *rest]:
            found = _address(rollout_id, attempt_id, None, rest)
        case _:
            found = None
    if found is None:
        path = "/".join(segments)
        message = f"{path} is not served here: a call's URL is {_SHAPE}; use the base URL of the LLM resource"
        raise CallRefusedError(message, status=404, code="unknown_url")
    if method != found[1].method:
        message = f"{method} is not served here; use {found[1].method}"
        raise CallRefusedError(message, status=405, code="method_not_allowed")
    return found


def dialect_of_client(headers: Mapping[bytes, bytes]) -> Dialect:
    """Return the dialect in which a client of this kind reads errors, where the path does not tell."""
    return _BY_PATH[("messages",) if is_anthropic(headers) else ("chat", "completions")].dialect


def is_anthropic(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client is one of Anthropic's."""
    return b"anthropic-version" in headers


def _address(
    rollout_id: str, attempt_id: str, agent: str | None, rest: list[str]
) -> tuple[Address, Route] | None:
    if rest and rest[0] == "v1":  # Anthropic's clients with the base URL of OpenAI's
        del rest[0]
    route = _BY_PATH.get(tuple(rest))
    if route is None or not rollout_id or not attempt_id or agent == "":
        return None
    address = Address(rollout_id=rollout_id, attempt_id=attempt_id, agent=agent, endpoint=route.endpoint)
    return address, route
