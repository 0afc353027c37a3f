"""Operations: what one verb and path does, takes, answers, and who may ask; one table for serving and for /docs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Literal

from pydantic import TypeAdapter

from agl.store.base import LightningStore
from agl.store.server.polls import LongPolls, Receive
from agl.types.record import Record

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is not simply a value as JSON."""

    body: bytes = b""
    chunks: AsyncGenerator[bytes] | None = None
    """The body in pieces, instead of ``body``; closed when all are sent or the client has gone."""
    length: int | None = None
    """Of ``chunks`` together, in bytes, where it is known."""
    status: int = 200
    media_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True, kw_only=True)
class Call:
    """One request, checked and decoded."""

    store: LightningStore
    ids: tuple[str, ...]
    """The path's parameters, in their order."""
    headers: Headers
    receive: Receive
    polls: LongPolls
    attempt: tuple[str, str] | None = None
    """The (rollout_id, attempt_id) that the caller's scoped token may touch; None for everything."""
    parameters: Any = None
    """A record of the operation's ``parameters``."""
    body: Any = None
    """A value of the operation's ``body``; of one with ``many``, such a value or a list of them; or raw bytes."""
    media_type: str = JSON
    """The body's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What an operation takes."""

    kind: Any
    """A type that pydantic knows; for raw bytes ``bytes``."""
    json_kind: Any = dict[str, Any]
    """Of raw bytes that may be JSON: the type to document."""
    many: bool = False
    """A list of such is taken as well."""
    required: bool = True
    """An empty body is the kind's defaults otherwise."""
    media_types: tuple[str, ...] = (JSON,)
    plain: Callable[[object], Any] | None = None
    """Makes one of ``kind`` of decoded JSON faster than pydantic, where that is plainly right; else it returns None."""
    adapter: TypeAdapter[Any] = field(init=False)
    list_adapter: TypeAdapter[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "adapter", TypeAdapter(self.kind))
        some: Any = GenericAlias(list, (self.kind,))
        object.__setattr__(self, "list_adapter", TypeAdapter(some))


Access = Callable[[Call, tuple[str, str]], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One verb on one path."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    """With ``{name}`` for each parameter."""
    run: Callable[[Call], Awaitable[object]]
    """Returns an Answer, or a value that is sent as JSON: records, lists, dicts of them."""
    summary: str
    answers: Any
    """The type of the answer, for the document; a media type for what is not JSON."""
    body: Body | None = None
    parameters: type[Record] | None = None
    writes: bool = False
    """Whether it changes the store: refused by a read-only server."""
    needs_token: bool = True
    access: Access | None = None
    """Whether a scoped token may ask this; None never."""
    refused: Callable[[Answer, Headers], Answer] | None = None
    """Turns a refusal into the shape that this operation's clients read, by the request's headers."""
    may: tuple[str, ...] = ()
    """Error codes beyond those of every operation: ``not_found``, ``conflict``."""
