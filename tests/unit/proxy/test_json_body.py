from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.proxy.json_body import MAX_DEPTH, object_from_body
from agl.proxy.refusal import CallRefusedError


def nested(depth, kind):
    """An object with so many levels, itself the first."""
    value = "x"
    for level in range(depth - 1):
        value = [value] if kind == "lists" or (kind == "both" and level % 2) else {"a": value}
    return orjson.dumps({"a": None}).replace(b"null", _worded(value))


def _worded(value):
    """JSON of any depth, which the library does not write."""
    ends = []
    while not isinstance(value, str):
        inner = value["a"] if isinstance(value, dict) else value[0]
        ends.append((b'{"a":', b"}") if isinstance(value, dict) else (b"[", b"]"))
        value = inner
    return b"".join(start for start, _ in ends) + b'"x"' + b"".join(end for _, end in reversed(ends))


@pytest.mark.parametrize("kind", ["lists", "objects", "both"])
def test_a_body_at_the_limit_is_read_and_can_be_written_again_and_one_beyond_is_refused(kind):
    body = nested(MAX_DEPTH, kind)
    assert orjson.dumps({"translated": [{"and": [{"recorded": [object_from_body(body)]}]}]})
    for depth in (MAX_DEPTH + 1, 255, 1000):
        with pytest.raises(CallRefusedError, match="nested deeper than 200 levels") as caught:
            object_from_body(nested(depth, kind))
        assert (caught.value.status, caught.value.code) == (400, "nested_too_deep")


def test_a_wide_body_is_not_deep():
    wide = {"messages": [{"role": "user", "content": [{"type": "text", "text": "["}]}] * 1000}
    assert object_from_body(orjson.dumps(wide)) == wide


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"{'a': 1}", b'{"a": NaN}', b"[" * 5000],
)
def test_what_is_no_json_is_refused(body):
    with pytest.raises(CallRefusedError, match="not JSON") as caught:
        object_from_body(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"x"', b"true"])
def test_what_is_no_object_is_refused(body):
    with pytest.raises(CallRefusedError, match="not a JSON object"):
        object_from_body(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body):
    with suppress(CallRefusedError):
        assert isinstance(object_from_body(body), dict)
