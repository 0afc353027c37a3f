from __future__ import annotations

import pytest
from pydantic import ValidationError

from agl.store.server.operation import Body
from agl.types import RolloutRequest


def test_a_body_knows_how_to_read_one_and_many() -> None:
    body = Body(kind=RolloutRequest, many=True)

    assert body.adapter.validate_json(b'{"task": 1}') == RolloutRequest(task=1)
    assert body.list_adapter.validate_json(b'[{"task": 1}, {"task": 2}]') == [
        RolloutRequest(task=1),
        RolloutRequest(task=2),
    ]
    with pytest.raises(ValidationError):
        body.adapter.validate_json(b"[]")
