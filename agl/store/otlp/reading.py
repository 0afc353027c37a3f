"""SpanReading: the spans of one OTLP request as they are read, whatever its encoding, and why some are rejected."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from agl.store.otlp.owner import NOBODY, Owner, UnreadableOwnerError, take_owner
from agl.types import Json, Span, SpanEvent, SpanKind, SpanLink, SpanStatus, SpanStatusCode

_MAX_PARTS = 100_000
"""Spans, scopes and resources in one request. Exporters send 512 spans; a collector's batch has 8,192."""
_MAX_VALUES = 1_000_000
"""Attributes, with what is inside of them, in one request: about 200 bytes each in memory, of few bytes sent."""
MAX_DEPTH = 32
"""Arrays and maps within each other, in one attribute. Protobuf's own readers end at 100 messages, three a level."""
_MAX_TIME_NS = (1 << 63) - 1
"""The year 2262: where signed nanoseconds end."""
_KINDS: tuple[SpanKind, ...] = ("internal", "internal", "server", "client", "producer", "consumer")
_CODES: tuple[SpanStatusCode, ...] = ("unset", "ok", "error")
_UNSET = SpanStatus()
_SCOPE = "otel.scope."
_TRACE_STATE = "w3c.tracestate"
_DROPPED_ATTRIBUTES = "otel.dropped_attributes_count"
_DROPPED_EVENTS = "otel.dropped_events_count"
_DROPPED_LINKS = "otel.dropped_links_count"
_ZERO_TRACE = "0" * 32
_ZERO_SPAN = "0" * 16


class MalformedRequestError(ValueError):
    """The body is no ExportTraceServiceRequest."""


class LargeRequestError(ValueError):
    """The request holds more than is read at once."""


class SpanRejectedError(ValueError):
    """This span cannot be kept; those beside it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the spans of one resource and scope share."""

    resource: dict[str, Json]
    owner: Owner
    refusal: str | None = None
    """Why none of these spans can be kept."""
    scope: dict[str, Json]
    """The instrumentation scope, as attributes of each of its spans."""


@dataclass(slots=True, kw_only=True)
class SpanReading:
    """What has been read. ``named`` is what the headers name, ``allowed`` the only attempt that the token may touch."""

    named: Owner = NOBODY
    allowed: Owner | None = None
    spans: list[Span] = field(default_factory=list[Span])
    rejected: Counter[str] = field(default_factory=Counter[str])
    """Reasons, and of how many spans."""
    max_parts: int = _MAX_PARTS
    max_values: int = _MAX_VALUES
    _num_parts: int = 0
    _num_values: int = 0

    def source(self, resource: dict[str, Json]) -> Source:
        """Return the source of a resource's spans, still without scope. The attributes become the record's."""
        try:
            owner, _ = take_owner(resource)
        except UnreadableOwnerError as error:
            return Source(resource=resource, owner=NOBODY, refusal=f"of the resource, {error}", scope={})
        return Source(resource=resource, owner=owner.or_else(self.named), scope={})

    def add(
        self,
        source: Source,
        *,
        trace_id: str,
        span_id: str,
        parent_id: str,
        name: str,
        kind: int,
        status: SpanStatus,
        attributes: dict[str, Json],
        events: tuple[SpanEvent, ...],
        links: tuple[SpanLink, ...],
        start_time_ns: int,
        end_time_ns: int,
    ) -> None:
        """Keep a span, or count why not. Ids are lower-case hex of any length, empty where there is none."""
        self._count_inside(attributes)
        for part in (*events, *links):
            self.count_values(len(part.attributes))
            self._count_inside(part.attributes)
        try:
            _check(trace_id, span_id, parent_id, max(start_time_ns, end_time_ns))
            named, sequence_id = _named(attributes)
            owner = self._owner(named, source)
        except SpanRejectedError as error:
            self.reject(str(error))
            return
        self.spans.append(
            Span(
                span_id=span_id,
                trace_id=trace_id,
                parent_id=None if not parent_id or parent_id == _ZERO_SPAN else parent_id,
                name=name,
                kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else "internal",
                status=status,
                attributes={**source.scope, **attributes} if source.scope else attributes,
                events=events,
                links=links,
                resource=source.resource,
                start_time_ns=start_time_ns,
                end_time_ns=end_time_ns or None,
                rollout_id=owner.rollout_id,
                attempt_id=owner.attempt_id,
                sequence_id=sequence_id,
            )
        )

    def reject(self, reason: str) -> None:
        """Count a span that cannot be kept."""
        self.rejected[reason] += 1

    def expect(self, more: int) -> None:
        """Count resources, scopes or spans about to be read; refuse a request with too many."""
        self._num_parts += more
        if self._num_parts > self.max_parts:
            raise LargeRequestError(
                f"more than {self.max_parts:,} spans, scopes and resources in one request: send smaller batches"
            )

    def count_values(self, more: int) -> None:
        """Count attributes, or what is inside of them; refuse a request with too many."""
        self._num_values += more
        self.require_values(self._num_values)

    def require_values(self, number: int) -> None:
        """Refuse a request with so many attributes."""
        if number > self.max_values:
            raise LargeRequestError(
                f"more than {self.max_values:,} attributes in one request: send smaller batches"
            )

    def _count_inside(self, attributes: dict[str, Json]) -> None:
        for value in attributes.values():
            if isinstance(value, list | dict):
                self.count_values(_num_inside(cast("list[Json]", value)))

    def _owner(self, named: Owner, source: Source) -> Owner:
        if source.refusal is not None:
            raise SpanRejectedError(source.refusal)
        owner = source.owner if named is NOBODY else named.or_else(source.owner)
        if self.allowed is None:
            return owner
        refusal = owner.refusal(self.allowed)
        if refusal is not None:
            raise SpanRejectedError(refusal)
        return self.allowed


def scope_attributes(name: str, version: str, attributes: dict[str, Json]) -> dict[str, Json]:
    """Return an instrumentation scope as attributes of its spans."""
    kept: dict[str, Json] = {_SCOPE + key: value for key, value in attributes.items()}
    if name:
        kept["otel.scope.name"] = name
    if version:
        kept["otel.scope.version"] = version
    return kept


def status_of(code: int, message: str) -> SpanStatus:
    """Return a span's status; a code that this version does not know is unset."""
    if code == 0 and not message:
        return _UNSET
    return SpanStatus(code=_CODES[code] if 0 <= code < len(_CODES) else "unset", description=message or None)


def event_of(name: str, time_ns: int, attributes: dict[str, Json]) -> SpanEvent:
    """Return an event; a time beyond the year 2262 is cut to it, as an event alone cannot be rejected."""
    return SpanEvent(name=name, time_ns=min(time_ns, _MAX_TIME_NS), attributes=attributes)


def extended(
    attributes: dict[str, Json],
    *,
    dropped: int = 0,
    dropped_events: int = 0,
    dropped_links: int = 0,
    trace_state: str = "",
) -> dict[str, Json]:
    """Return the attributes with what the record has no field for."""
    if dropped:
        attributes[_DROPPED_ATTRIBUTES] = dropped
    if dropped_events:
        attributes[_DROPPED_EVENTS] = dropped_events
    if dropped_links:
        attributes[_DROPPED_LINKS] = dropped_links
    if trace_state:
        attributes[_TRACE_STATE] = trace_state
    return attributes


def _num_inside(value: list[Json] | dict[str, Json]) -> int:
    inside = value.values() if isinstance(value, dict) else value
    return len(value) + sum(
        _num_inside(cast("list[Json]", item)) for item in inside if isinstance(item, list | dict)
    )


def _check(trace_id: str, span_id: str, parent_id: str, latest_ns: int) -> None:
    if len(trace_id) != 32 or trace_id == _ZERO_TRACE:
        raise SpanRejectedError("trace_id is not 16 bytes that are not all zero")
    if len(span_id) != 16 or span_id == _ZERO_SPAN:
        raise SpanRejectedError("span_id is not 8 bytes that are not all zero")
    if parent_id and len(parent_id) != 16:
        raise SpanRejectedError("parent_span_id is not 8 bytes")
    if latest_ns > _MAX_TIME_NS:
        raise SpanRejectedError("start or end time is later than the year 2262")


def _named(attributes: dict[str, Json]) -> tuple[Owner, int | None]:
    try:
        return take_owner(attributes)
    except UnreadableOwnerError as error:
        raise SpanRejectedError(str(error)) from error
