"""Records as lines of JSON and back."""

from __future__ import annotations

import json

import pytest
from recorded_runs import RUN, rollout, span

from agl.errors import ConfigError
from agl.export.lines import Recorded, json_object, line_of, record_of


@pytest.mark.parametrize("record", [RUN, rollout(1, reward=None, status="failed"), span(1, 2)])
def test_every_field_comes_back(record: Recorded) -> None:
    line = line_of(record)
    assert line.count(b"\n") == 1
    assert record_of(json_object(line, "f:1"), "f:1") == record


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "f:3: not JSON"),
        (b"\xff", "f:3: not JSON"),
        (b"[1]", "f:3: a list and not a JSON object"),
        (b'{"a": 1}', 'f:3: no record: a line has "record"'),
        (b'{"record": "span", "span_id": "a"}', "f:3: trace_id: Field required"),
        (b'{"record": "run", "run_id": "a", "name": "n", "created_at": 1, "x": 2}', "f:3: x: Extra inputs"),
    ],
)
def test_a_line_that_is_no_record_is_named(line: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        record_of(json_object(line, "f:3"), "f:3")


def test_lines_are_plain_json_with_the_kind_first() -> None:
    value = json.loads(line_of(rollout(1)))
    assert next(iter(value)) == "record"
    assert value["record"] == "rollout"
    assert [one["attempt_id"] for one in value["attempts"]] == ["at-1"]
