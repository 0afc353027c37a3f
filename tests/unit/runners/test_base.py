"""What every kind of runners promises."""

import pytest

from agl.errors import ConfigError
from agl.runners.base import Runners, check_runner_settings
from agl.runners.inline import InlineRunners


def test_every_kind_satisfies_the_protocol() -> None:
    assert isinstance(InlineRunners(), Runners)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((0, 1.0, 0.0), "max_concurrency=0"),
        ((1, 0.0, 0.0), "heartbeat_seconds=0.0"),
        ((1, 1.0, -1.0), "drain_seconds=-1.0"),
        ((1, float("nan"), 0.0), "heartbeat_seconds=nan"),
    ],
)
def test_a_setting_that_no_runner_can_work_with_is_named(values, named) -> None:
    with pytest.raises(ConfigError, match=f"runner.{named}"):
        check_runner_settings(*values)
