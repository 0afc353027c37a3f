"""Protobuf's wire format, walked without building messages.

Source: https://protobuf.dev/programming-guides/encoding/. Field numbers are those of opentelemetry/proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from agl.store.otlp.reading import LargeRequestError, MalformedRequestError

# Wire types.
_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_FIXED: Mapping[int, int] = MappingProxyType({1: 8, _FIXED32: 4})
"""Bytes of a field by its wire type."""
_GROUPS: Mapping[int, int] = MappingProxyType({3: 1, 4: -1})
_MAX_GROUPS = 64
_MAX_DEPTH = 100
"""Where protobuf's own readers end."""

# Which fields of a message are messages that hold attributes, by message.
_INSIDE: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "resource": {1: "pair"},
        "scope": {3: "pair"},
        "span": {9: "pair", 11: "event", 13: "link"},
        "event": {3: "pair"},
        "link": {4: "pair"},
        "pair": {2: "value"},
        "value": {5: "array", 6: "map"},
        "array": {1: "value"},
        "map": {1: "pair"},
    }
)


class FieldWalk:
    """Walks the messages of one request, and refuses it when it has more fields than any honest one."""

    def __init__(self, *, max_fields: int = 1_000_000) -> None:
        self._max_fields = max_fields
        self._num_fields = 0

    def embedded(self, data: memoryview, number: int) -> Iterator[memoryview]:
        """Yield each embedded message with this field number, in order.

        Raises:
            MalformedRequestError: the data is no protobuf message.
            LargeRequestError: too many fields.
        """
        for found, start, end in self._fields(data, 0, len(data)):
            if found == number:
                yield data[start:end]

    def count_values(self, data: memoryview, message: str) -> int:
        """Return how many attributes, values, events and links a message holds, at any depth. Raises as above."""
        counted = 0
        open_messages = [(_INSIDE[message], self._fields(data, 0, len(data)))]
        while open_messages:
            inside, fields = open_messages[-1]
            for number, first, last in fields:
                part = inside.get(number)
                if part is not None:
                    counted += 1
                    if first < last:
                        open_messages.append((_INSIDE[part], self._fields(data, first, last)))
                        break
            else:
                open_messages.pop()
            if len(open_messages) > _MAX_DEPTH:
                raise MalformedRequestError(f"messages nest deeper than {_MAX_DEPTH}")
        return counted

    def _fields(self, data: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield number, start and end of each length-delimited field."""
        groups = 0
        while position < end:
            self._num_fields += 1
            if self._num_fields > self._max_fields:
                raise LargeRequestError(f"more than {self._max_fields:,} fields: send smaller batches")
            tag, position = _varint(data, position, end)
            wire = tag & 7
            if wire == _BYTES:
                length, position = _varint(data, position, end)
                if not groups and length <= end - position:
                    yield tag >> 3, position, position + length
                position += length
            elif wire == _VARINT:
                _, position = _varint(data, position, end)
            else:
                position += _FIXED.get(wire, 0)
                groups += _GROUPS.get(wire, 0)
                if wire > _FIXED32 or not 0 <= groups <= _MAX_GROUPS:
                    raise MalformedRequestError(f"wire type {wire} at byte {position}")
        if position != end or groups:
            raise MalformedRequestError(f"it ends within a field, at byte {end}")


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedRequestError(f"a number without end at byte {position}")
