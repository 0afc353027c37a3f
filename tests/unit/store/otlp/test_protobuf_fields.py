from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from agl.store.otlp.protobuf_fields import FieldWalk
from agl.store.otlp.reading import LargeRequestError, MalformedRequestError


def fields(data: bytes, number: int) -> list[bytes]:
    return [bytes(part) for part in FieldWalk().embedded(memoryview(data), number)]


def test_embedded_messages_come_in_order() -> None:
    spans = [Span(name="a"), Span(name="b" * 300), Span()]
    data = ScopeSpans(spans=spans, schema_url="s").SerializeToString()
    assert fields(data, 2) == [span.SerializeToString() for span in spans]
    assert fields(data, 3) == [b"s"]
    assert fields(data, 1) == []
    assert ResourceSpans.FromString(b"") == ResourceSpans()


def test_fields_of_all_wire_types_and_groups_are_passed_over() -> None:
    varint, fixed64, fixed32 = b"\x08\x96\x01", b"\x09" + b"x" * 8, b"\x0d" + b"x" * 4
    group = b"\x1b" + b"\x12\x01a" + b"\x1c"  # its content is no field of the message
    assert fields(varint + fixed64 + fixed32 + group + b"\x12\x01b", 2) == [b"b"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x12",
        b"\x12\x05a",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff" * 11,
        b"\x09x",
        b"\x0dx",
        b"\x08",
        b"\x0e",
        b"\x0f",
        b"\x1b",
        b"\x1c",
        b"\x1b" * 65 + b"\x1c" * 65,
    ],
    ids=bytes.hex,
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        fields(data, 1)


def test_values_are_counted_at_any_depth() -> None:
    inside = KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=1))])
    some = ArrayValue(values=[AnyValue(kvlist_value=inside), AnyValue()])
    span = Span(
        attributes=[KeyValue(key="list", value=AnyValue(array_value=some))],
        events=[Span.Event(attributes=[KeyValue()])],
        links=[Span.Link(attributes=[KeyValue()])],
    )
    # the attribute 1, its value 1, the array 1, its items 2, the map 1, its pair 1 and value 1; event 2; link 2
    assert FieldWalk().count_values(memoryview(span.SerializeToString()), "span") == 12


def test_too_many_fields_are_refused_wherever_they_are() -> None:
    walk = FieldWalk(max_fields=5)
    data = memoryview(b"\x08\x00\x12\x02\x08\x00")
    (inside,) = walk.embedded(data, 2)
    assert list(walk.embedded(inside, 2)) == []
    with pytest.raises(LargeRequestError, match="more than 5 fields"):
        list(walk.embedded(memoryview(b"\x08\x00" * 3), 2))
