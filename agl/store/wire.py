"""The wire: what the HTTP server and its client agree on - bodies, error codes, headers, query parameters.

The records of ``agl.types`` travel as their JSON. Fields left out or null mean what the store's arguments mean by None.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson
from pydantic import Field

from agl.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StoreError,
    StoreUnavailableError,
)
from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    ErrorInfo,
    RecordedRollout,
    Resource,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    Run,
    RunStatus,
    Span,
)
from agl.types.query import ListQuery
from agl.types.record import Identifier, Json, Record

DEFAULT_PORT = 4747
IDENTITY_HEADER = "x-agl-store"
"""A client sends the identity that it found at connect; a server with another one answers 409 ``store_changed``."""
MAX_BATCH = 10_000
"""Most rollouts, spans or ids in one request; a client splits what is longer."""
MAX_WAIT_SECONDS = 30.0
"""Longest time the server holds a long poll; a client that waits longer asks again."""

CODES: Mapping[str, tuple[int, type[StoreError]]] = MappingProxyType(
    {
        "bad_request": (400, InvalidRequestError),
        "unauthorized": (401, AccessDeniedError),
        "forbidden": (403, AccessDeniedError),
        "not_found": (404, NotFoundError),
        "method_not_allowed": (405, InvalidRequestError),
        "timeout": (408, StoreUnavailableError),
        "conflict": (409, ConflictError),
        "store_changed": (409, StoreUnavailableError),
        "too_large": (413, InvalidRequestError),
        "unsupported_media_type": (415, InvalidRequestError),
        "invalid": (422, InvalidRequestError),
        "too_many_requests": (429, StoreUnavailableError),
        "failed": (500, StoreError),
        "unavailable": (503, StoreUnavailableError),
    }
)
"""Each error code: its HTTP status, and the exception the client raises for it."""
RETRIED = frozenset(("too_many_requests", "unavailable"))
"""Codes after which an idempotent call is tried again."""


def code_of(error: StoreError) -> str:
    """Return the error code of a store's exception."""
    for kind, code in (
        (NotFoundError, "not_found"),
        (ConflictError, "conflict"),
        (InvalidRequestError, "invalid"),
        (StoreUnavailableError, "unavailable"),
        (AccessDeniedError, "forbidden"),
    ):
        if isinstance(error, kind):
            return code
    return "failed"


def error_body(code: str, message: str) -> dict[str, dict[str, str]]:
    """Return the body of every answer that is no success."""
    return {"error": {"code": code, "message": message}}


def error_from(code: str, message: str) -> StoreError:
    """Return the exception of an error code; StoreError for one that this version does not know."""
    return CODES.get(code, (0, StoreError))[1](message)


class ClaimedRollout(Rollout):
    """A rollout with the attempt just made of it: what dequeue and the attempt calls answer."""

    attempt: Attempt

    @classmethod
    def of(cls, held: AttemptedRollout) -> ClaimedRollout:
        """Return the wire's form of a rollout and its attempt."""
        return cls.trusted({**held.rollout.__dict__, "attempt": held.attempt})

    def held(self) -> AttemptedRollout:
        """Return the rollout and its attempt."""
        fields = self.__dict__.copy()
        attempt = fields.pop("attempt")
        return AttemptedRollout.trusted({"rollout": Rollout.trusted(fields), "attempt": attempt})


class Dequeue(Record):
    """POST /v1/rollouts/dequeue. Without ``limit`` the answer is one rollout or null, with it a list."""

    worker_id: Identifier
    limit: int | None = Field(default=None, ge=1, le=MAX_BATCH)
    wait_seconds: float = Field(default=0.0, ge=0.0, le=MAX_WAIT_SECONDS)
    request_id: Identifier | None = None
    run_id: str | None = None


class UndoDequeue(Record):
    """POST /v1/rollouts/dequeue/undo; answers ``{"rollout_ids": [...]}``."""

    worker_id: Identifier
    request_id: Identifier


class Start(Record):
    """POST /v1/rollouts/{id}/attempts: a new attempt past the queue."""

    worker_id: Identifier | None = None


class Wait(Record):
    """POST /v1/rollouts/wait; answers ``{"items": [...]}``, those that are terminal, in the order asked for."""

    rollout_ids: tuple[str, ...] = Field(max_length=MAX_BATCH)
    timeout_seconds: float = Field(default=0.0, ge=0.0, le=MAX_WAIT_SECONDS)
    at_least: int | None = Field(default=None, ge=0)
    """Answer as soon as so many are terminal; null is all."""


class RolloutUpdate(Record):
    """PATCH /v1/rollouts/{id}."""

    status: RolloutStatus | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Json] | None = None
    priority: int | None = None


class AttemptUpdate(Record):
    """PATCH /v1/rollouts/{id}/attempts/{aid}; answers the rollout with the attempt."""

    status: AttemptStatus | None = None
    worker_id: Identifier | None = None
    reward: float | None = None
    reward_dimensions: dict[str, float] | None = None
    error: ErrorInfo | None = None


class AttemptKey(Record):
    """An attempt by name."""

    rollout_id: str
    attempt_id: str


class Sequence(Record):
    """POST /v1/spans/sequence; answers ``{"sequence_ids": [...]}``."""

    attempts: tuple[AttemptKey, ...] = Field(max_length=MAX_BATCH)


class Restore(Record):
    """POST /v1/restore; answers how many ``runs``, ``rollouts``, ``attempts`` and ``spans`` are new."""

    runs: tuple[Run, ...] = Field(default=(), max_length=MAX_BATCH)
    rollouts: tuple[RecordedRollout, ...] = Field(default=(), max_length=MAX_BATCH)
    spans: tuple[Span, ...] = Field(default=(), max_length=MAX_BATCH)


class StoredSpans(Record):
    """What POST /v1/spans?answer=ids answers: enough for a client that still has the spans that it sent."""

    sequence_ids: tuple[int | None, ...]
    others: dict[str, Span] = Field(default_factory=dict)
    """By their place among those sent: spans that are stored otherwise than sent, e.g. because their id was known."""

    @classmethod
    def of(cls, sent: list[Span], stored: list[Span]) -> StoredSpans:
        """Return the answer to spans that the store received as ``sent`` and returned as ``stored``."""
        others = {
            str(place): new
            for place, (old, new) in enumerate(zip(sent, stored, strict=True))
            if {**vars(old), "sequence_id": new.sequence_id} != vars(new)
        }
        return cls(sequence_ids=tuple(span.sequence_id for span in stored), others=others)

    def spans(self, sent: list[Span]) -> list[Span]:
        """Return the stored spans, given those that were sent."""
        return [
            self.others.get(str(place)) or span.changed(sequence_id=number)
            for place, (span, number) in enumerate(zip(sent, self.sequence_ids, strict=True))
        ]


class NewResources(Record):
    """POST /v1/resources."""

    resources: dict[str, Resource]
    run_id: Identifier | None = None
    resources_id: Identifier | None = None


class NewWorker(Record):
    """POST /v1/workers."""

    worker_id: Identifier
    host: str = ""
    pid: int = 0


class Heartbeat(Record):
    """POST /v1/workers/{id}/heartbeat; answers ``{"lost": [...]}``, attempts that are no longer the worker's."""

    attempts: tuple[str, ...] = Field(default=(), max_length=MAX_BATCH)
    stats: dict[str, Json] | None = None


class NewRun(Record):
    """POST /v1/runs."""

    name: str
    run_id: Identifier | None = None
    command: str = ""
    settings: dict[str, Json] = Field(default_factory=dict)
    git_commit: str | None = None


class RunUpdate(Record):
    """PATCH /v1/runs/{id}."""

    status: RunStatus


class Metrics(Record):
    """POST /v1/runs/{id}/metrics; answers ``null``."""

    step: int
    values: dict[str, float]


def parameters(query: ListQuery) -> list[tuple[str, str]]:
    """Return a query as URL parameters: a tuple as repeated keys, ``attributes`` as one JSON object, None left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in query:
        if value is None:
            continue
        if isinstance(value, tuple):
            pairs.extend((name, str(one)) for one in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif isinstance(value, dict):
            pairs.append((name, orjson.dumps(value).decode("utf-8")))
        else:
            pairs.append((name, str(value)))
    return pairs


def query_from(kind: type[Record], pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a record of this kind from URL parameters; its validation is the caller's.

    Raises:
        InvalidRequestError: an unknown or repeated parameter, or ``attributes`` that is no JSON.
    """
    fields: dict[str, Any] = {}
    for name, text in pairs:
        if name not in kind.model_fields:
            raise InvalidRequestError(
                f"{name} is not a parameter here; known are {', '.join(sorted(kind.model_fields))}"
            )
        if "tuple" in str(kind.model_fields[name].annotation):
            fields[name] = (*fields.get(name, ()), text)
        elif name in fields:
            raise InvalidRequestError(f"{name} is given twice, and takes one value")
        elif name == "attributes":
            try:
                fields[name] = orjson.loads(text)
            except orjson.JSONDecodeError as error:
                raise InvalidRequestError(f"attributes is not a JSON object: {error}") from error
        else:
            fields[name] = text
    return fields
