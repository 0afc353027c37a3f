"""Routes: whose call a URL names and what it asks for.

The base URL that an agent gets is its identity: ``/rollout/{id}/attempt/{id}[/agent/{name}]/v1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from agl.proxy.refusal import CallRefusedError

Endpoint = Literal["chat", "models"]
_METHODS: dict[Endpoint, str] = {"chat": "POST", "models": "GET"}
_ENDPOINTS: dict[tuple[str, ...], Endpoint] = {("chat", "completions"): "chat", ("models",): "models"}
_SHAPE = "/rollout/{rollout_id}/attempt/{attempt_id}[/agent/{name}]/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What a request's path says: the attempt, the agent and the endpoint."""

    rollout_id: str
    attempt_id: str
    agent: str | None
    endpoint: Endpoint


def address_from_path(method: str, raw_path: bytes) -> Address:
    """Return what the path names. Segments are percent-decoded one by one, so that ids may hold any character.

    Raises:
        CallRefusedError: 404 for a path that names no attempt or endpoint, 405 for the wrong method.
    """
    segments = [unquote(part) for part in raw_path.decode("ascii", "replace").split("/")]
    match segments:
        case ["", "rollout", rollout_id, "attempt", attempt_id, "agent", agent, "v1", *rest]:
            found = _address(rollout_id, attempt_id, agent, tuple(rest))
        case ["", "rollout", rollout_id, "attempt", attempt_id, "v1", *rest]:
            found = _address(rollout_id, attempt_id, None, tuple(rest))
        case _:
            found = None
    if found is None:
        path = "/".join(segments)
        message = f"{path} is not served here: a call's URL is {_SHAPE}; use the base URL of the LLM resource"
        raise CallRefusedError(message, status=404, code="unknown_url")
    if method != _METHODS[found.endpoint]:
        message = f"{method} is not served here; use {_METHODS[found.endpoint]}"
        raise CallRefusedError(message, status=405, code="method_not_allowed")
    return found


def _address(rollout_id: str, attempt_id: str, agent: str | None, rest: tuple[str, ...]) -> Address | None:
    endpoint = _ENDPOINTS.get(rest)
    if endpoint is None or not rollout_id or not attempt_id or agent == "":
        return None
    return Address(rollout_id=rollout_id, attempt_id=attempt_id, agent=agent, endpoint=endpoint)
