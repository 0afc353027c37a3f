"""Bodies: records to the JSON that goes out, and what comes in to records.

Requests are encoded by orjson like the rows of the local stores, so that the same values are refused. Answers come from
a store that checked them; fields that only a newer server knows are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson
from pydantic import TypeAdapter, ValidationError

from agl.errors import InvalidRequestError, NotFoundError, StoreError
from agl.store import wire
from agl.types import (
    Attempt,
    MetricPoint,
    NamedResources,
    Page,
    Resource,
    Rollout,
    RolloutConfig,
    RolloutRequest,
    Run,
    Span,
    Worker,
)
from agl.types.query import ListQuery

T = TypeVar("T")
MAX_BODY_BYTES = 4 * 1024 * 1024
"""Longest body made of many records; longer lists go in several requests. One record may be longer."""

ROLLOUT = TypeAdapter(Rollout)
ROLLOUTS = TypeAdapter(list[Rollout])
ROLLOUT_PAGE = TypeAdapter(Page[Rollout])
CLAIM = TypeAdapter(wire.ClaimedRollout)
CLAIMS = TypeAdapter(list[wire.ClaimedRollout])
ATTEMPT = TypeAdapter(Attempt | None)
ATTEMPT_PAGE = TypeAdapter(Page[Attempt])
STORED_SPANS = TypeAdapter(wire.StoredSpans)
SPAN_PAGE = TypeAdapter(Page[Span])
RESOURCES = TypeAdapter(NamedResources)
LATEST_RESOURCES = TypeAdapter(NamedResources | None)
RESOURCES_PAGE = TypeAdapter(Page[NamedResources])
WORKER = TypeAdapter(Worker)
WORKER_PAGE = TypeAdapter(Page[Worker])
RUN = TypeAdapter(Run)
RUN_PAGE = TypeAdapter(Page[Run])
METRIC_PAGE = TypeAdapter(Page[MetricPoint])
NAMES = TypeAdapter(dict[str, list[str]])
NUMBERS = TypeAdapter(dict[str, list[int]])
COUNTS = TypeAdapter(dict[str, int])
ROLLOUT_LIST = TypeAdapter(dict[str, list[Rollout]])
OBJECT = TypeAdapter(dict[str, Any])


def decoded(adapter: TypeAdapter[T], body: bytes) -> T:
    """Return the records in an answer.

    Raises:
        StoreError: it is something else.
    """
    try:
        return adapter.validate_json(body, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise StoreError(
            f"the store's answer is not what this version of agl expects ({where}: {first['msg']})"
        ) from error


def encoded(value: object, what: str) -> bytes:
    """Return a value as JSON.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from error


def fields_json(what: str, **fields: object) -> bytes:
    """Return the fields that are given (not None) as a JSON object."""
    return encoded({name: value for name, value in fields.items() if value is not None}, what)


def rollout_json(request: RolloutRequest, rollout_id: str | None) -> bytes:
    """Return a request to enqueue or start a rollout of that id."""
    fields = {**request.__dict__, "rollout_id": rollout_id, "config": config_fields(request.config)}
    return encoded(fields, f"rollout {rollout_id or ''}")


def config_fields(config: RolloutConfig) -> dict[str, object]:
    """Return a rollout's config as orjson takes it."""
    return {**config.__dict__}


def span_json(span: Span) -> bytes:
    """Return a span; what has its default is left out, for it is most of a small span."""
    fields = {name: value for name, value in span.__dict__.items() if value is not None and value != ()}
    status = span.status
    if status.code == "unset" and status.description is None:
        del fields["status"]
    else:
        fields["status"] = status.__dict__
    if span.events:
        fields["events"] = [event.__dict__ for event in span.events]
    if span.links:
        fields["links"] = [link.__dict__ for link in span.links]
    if not span.resource:
        fields.pop("resource", None)
    return encoded(fields, f"span {span.span_id} ({span.name})")


def resources_json(
    resources: Mapping[str, Resource], *, run_id: str | None, resources_id: str | None
) -> bytes:
    """Return a new version of resources, checked as the local stores check it."""
    try:
        checked = wire.NewResources(resources=dict(resources), run_id=run_id, resources_id=resources_id)
    except ValidationError as error:
        raise InvalidRequestError(f"resources of unknown shape: {error}") from error
    return encoded(checked.model_dump(), "a resource")


def joined(texts: Sequence[bytes]) -> bytes:
    """Return a JSON list of encoded values."""
    return b"[%b]" % b",".join(texts)


def parts_within(texts: Sequence[bytes]) -> Iterator[slice]:
    """Yield the parts of a long list that fit one request each, in order; nothing for an empty list."""
    start = size = 0
    for place, text in enumerate(texts):
        if place > start and (place - start == wire.MAX_BATCH or size + len(text) > MAX_BODY_BYTES):
            yield slice(start, place)
            start, size = place, 0
        size += len(text) + 1
    if texts:
        yield slice(start, len(texts))


def segment(name: str) -> str:
    """Return an id as one segment of a path.

    Raises:
        NotFoundError: nothing can have this id: it is empty, dots alone, or no text.
    """
    try:
        if name.strip("."):
            return quote(name, safe="")
    except UnicodeEncodeError:
        pass
    raise NotFoundError(f"nothing in the store has the id {name!r}")


def target(path: str, query: ListQuery | Mapping[str, object], *, without: str | None = None) -> str:
    """Return a path with a query's parameters, ``without`` the one that is in the path."""
    if isinstance(query, ListQuery):
        pairs = [pair for pair in wire.parameters(query) if pair[0] != without]
    else:
        pairs = [(name, str(value)) for name, value in query.items() if value is not None]
    try:
        return f"{path}?{urlencode(pairs)}" if pairs else path
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"a parameter is no text: {error}") from error


def matches_nothing(query: ListQuery) -> bool:
    """Return whether a filter names no value at all, which parameters of a URL cannot say."""
    return any(value == () for _, value in query)
