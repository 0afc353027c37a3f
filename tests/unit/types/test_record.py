"""Records made without a check are records like any other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agl.types import Rollout, SpanEvent


def test_a_trusted_record_is_the_checked_one() -> None:
    fields = {"name": "n", "time_ns": 1, "attributes": {"a": 1}}
    trusted, checked = SpanEvent.trusted(dict(fields)), SpanEvent(**fields)  # pyright: ignore[reportArgumentType]
    assert trusted == checked
    assert trusted.model_dump() == checked.model_dump(exclude_unset=True) == fields
    assert trusted.model_dump_json() == checked.model_dump_json()
    assert repr(trusted) == repr(checked)
    assert trusted.model_copy(update={"name": "m"}) == SpanEvent(name="m", time_ns=1, attributes={"a": 1})
    with pytest.raises(ValidationError, match="frozen"):
        trusted.name = "m"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_changed_record_leaves_the_first_as_it_was() -> None:
    first = Rollout(rollout_id="r", task=1, created_at=1.0)
    second = first.changed(status="running", started_at=2.0)
    assert second == Rollout(rollout_id="r", task=1, created_at=1.0, status="running", started_at=2.0)
    assert first == Rollout(rollout_id="r", task=1, created_at=1.0)
