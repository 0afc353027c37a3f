"""An attempt to give to agents."""

from collections.abc import Callable
from typing import Any

import pytest

from agl.agents.base import Assignment
from agl.types import Attempt, Rollout


@pytest.fixture
def assignment() -> Callable[..., Assignment]:
    def made(task: Any = "add 1 and 2", **resources: Any) -> Assignment:
        rollout = Rollout(rollout_id="r1", task=task, created_at=1.0)
        attempt = Attempt(
            attempt_id="a1", rollout_id="r1", sequence_id=1, started_at=1.0, last_heartbeat_at=1.0
        )
        return Assignment(rollout=rollout, attempt=attempt, resources=resources)

    return made
