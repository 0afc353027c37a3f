"""The JSON encoding: an ExportTraceServiceRequest as protobuf's JSON, with OTLP's own rules.

Ids are hex in either case, enums are numbers, 64-bit numbers are text or numbers, unknown fields are ignored, and null
is a field left out.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from types import MappingProxyType
from typing import Any, cast

import orjson

from agl.store.otlp.reading import (
    MAX_DEPTH,
    MalformedRequestError,
    Source,
    SpanReading,
    event_of,
    extended,
    scope_attributes,
    status_of,
)
from agl.types import Json, SpanEvent, SpanLink

_HEX = re.compile("[0-9a-fA-F]*")
_INTEGER = re.compile("-?[0-9]{1,20}")
_DOUBLE = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][-+]?[0-9]{1,4})?")
_NON_FINITE = frozenset(("NaN", "Infinity", "-Infinity"))
_INT64 = 1 << 63
_UINT32, _UINT64 = 1 << 32, 1 << 64

Message = Mapping[str, Json]
_NOTHING: Message = MappingProxyType({})


def read_json(body: bytes, reading: SpanReading) -> None:
    """Read a request's spans.

    Raises:
        MalformedRequestError: the body is no ExportTraceServiceRequest.
        LargeRequestError: it holds too much.
    """
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequestError(f"the body is not JSON: {error}") from error
    for resource_spans in _messages(_message(request, "the body"), "resourceSpans"):
        reading.expect(1)
        resource = _message(resource_spans.get("resource"), "resource")
        source = reading.source(_extended_attributes(resource))
        for scope_spans in _messages(resource_spans, "scopeSpans"):
            reading.expect(1)
            scope = _message(scope_spans.get("scope"), "scope")
            kept = scope_attributes(
                _text(scope, "name"), _text(scope, "version"), _extended_attributes(scope)
            )
            scoped = replace(source, scope=kept)
            spans = _messages(scope_spans, "spans")
            reading.expect(len(spans))
            for span in spans:
                _read_span(span, scoped, reading)


def _read_span(span: Message, source: Source, reading: SpanReading) -> None:
    status = _message(span.get("status"), "status")
    reading.count_values(sum(len(_messages(span, name)) for name in ("attributes", "events", "links")))
    reading.add(
        source,
        trace_id=_hex(span, "traceId"),
        span_id=_hex(span, "spanId"),
        parent_id=_hex(span, "parentSpanId"),
        name=_text(span, "name"),
        kind=_enum(span, "kind"),
        status=status_of(_enum(status, "code"), _text(status, "message")),
        attributes=extended(
            _attributes(span),
            dropped=_count(span, "droppedAttributesCount"),
            dropped_events=_count(span, "droppedEventsCount"),
            dropped_links=_count(span, "droppedLinksCount"),
            trace_state=_text(span, "traceState"),
        ),
        events=tuple([_event(event) for event in _messages(span, "events")]),
        links=tuple([_link(link) for link in _messages(span, "links")]),
        start_time_ns=_time(span, "startTimeUnixNano"),
        end_time_ns=_time(span, "endTimeUnixNano"),
    )


def _event(event: Message) -> SpanEvent:
    return event_of(_text(event, "name"), _time(event, "timeUnixNano"), _extended_attributes(event))


def _link(link: Message) -> SpanLink:
    return SpanLink(
        trace_id=_hex(link, "traceId"), span_id=_hex(link, "spanId"), attributes=_extended_attributes(link)
    )


def _extended_attributes(message: Message) -> dict[str, Json]:
    return extended(
        _attributes(message),
        dropped=_count(message, "droppedAttributesCount"),
        trace_state=_text(message, "traceState"),
    )


def _attributes(message: Message) -> dict[str, Json]:
    return _pairs(_messages(message, "attributes"), 0)


def _pairs(pairs: list[Message], depth: int) -> dict[str, Json]:
    return {_text(pair, "key"): _value(pair.get("value"), depth) for pair in pairs}


def _value(value: Json, depth: int) -> Json:
    if value is None:
        return None
    if depth > MAX_DEPTH:
        raise MalformedRequestError(f"an attribute nests deeper than {MAX_DEPTH} arrays and maps")
    for kind, given in _message(value, "an attribute's value").items():
        if given is None:
            continue
        if kind == "arrayValue":
            return [_value(item, depth + 1) for item in _messages(_message(given, kind), "values")]
        if kind == "kvlistValue":
            return _pairs(_messages(_message(given, kind), "values"), depth + 1)
        reader = _SCALARS.get(kind)
        if reader is not None:
            return reader(given)
    return None


def _string(given: Json) -> str:
    if not isinstance(given, str):
        raise MalformedRequestError("stringValue is not text")
    return given


def _bool(given: Json) -> bool:
    if not isinstance(given, bool):
        raise MalformedRequestError("boolValue is neither true nor false")
    return given


def _int(given: Json) -> int:
    number = _whole(given, "intValue")
    if not -_INT64 <= number < _INT64:
        raise MalformedRequestError("intValue is beyond 64 bits")
    return number


def _double(given: Json) -> float | str:
    if isinstance(given, str):
        if given in _NON_FINITE:
            return given
        if not _DOUBLE.fullmatch(given):
            raise MalformedRequestError("doubleValue is not a number")
    elif not isinstance(given, int | float) or isinstance(given, bool):
        raise MalformedRequestError("doubleValue is not a number")
    number = float(given)
    if not isfinite(number):
        raise MalformedRequestError("doubleValue is beyond 64 bits")
    return number


def _bytes(given: Json) -> str:
    text = _string(given).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return b64encode(b64decode(text + "=" * (-len(text) % 4), validate=True)).decode("ascii")
    except ValueError as error:
        raise MalformedRequestError(f"bytesValue is not base64: {error}") from error


_SCALARS: Mapping[str, Callable[[Json], Json]] = MappingProxyType(
    {
        "stringValue": _string,
        "intValue": _int,
        "boolValue": _bool,
        "doubleValue": _double,
        "bytesValue": _bytes,
    }
)


def _message(value: Json, what: str) -> Message:
    if value is None:
        return _NOTHING
    if not isinstance(value, dict):
        raise MalformedRequestError(f"{what} is not a JSON object")
    return cast("Message", value)


def _messages(message: Message, name: str) -> list[Message]:
    value = message.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedRequestError(f"{name} is not a list")
    items = cast("list[Any]", value)
    for item in items:
        if not isinstance(item, dict):
            raise MalformedRequestError(f"{name} holds what is not a JSON object")
    return items


def _text(message: Message, name: str) -> str:
    value = message.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedRequestError(f"{name} is not text")
    return value


def _hex(message: Message, name: str) -> str:
    text = _text(message, name)
    if not _HEX.fullmatch(text):
        raise MalformedRequestError(f"{name} is not hex")
    return text.lower()


def _enum(message: Message, name: str) -> int:
    value = message.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedRequestError(f"{name} is not a number; OTLP has no names for enums in JSON")
    return value


def _time(message: Message, name: str) -> int:
    return _unsigned(message, name, _UINT64)


def _count(message: Message, name: str) -> int:
    return _unsigned(message, name, _UINT32)


def _unsigned(message: Message, name: str, limit: int) -> int:
    value = message.get(name)
    if value is None:
        return 0
    number = _whole(value, name)
    if not 0 <= number < limit:
        raise MalformedRequestError(f"{name} is not between 0 and {limit - 1}")
    return number


def _whole(value: Json, name: str) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise MalformedRequestError(f"{name} is not a whole number")
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedRequestError(f"{name} is not a whole number")
    return value
