"""The settings of a pool. Real processes: tests/integration/test_process_runners.py."""

from pathlib import Path

import pytest
import yaml

from agl.errors import ConfigError
from agl.runners.base import Runners
from agl.runners.processes import ProcessRunners
from agl.runners.remote import RemoteRunners


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"processes": 0}, "processes=0"),
        ({"max_crashes": 0}, "max_crashes=0"),
        ({"max_concurrency": 0}, "max_concurrency=0"),
        ({"drain_seconds": -1.0}, "drain_seconds=-1.0"),
    ],
)
def test_wrong_settings_are_named(settings, named) -> None:
    with pytest.raises(ConfigError, match=f"runner.{named}"):
        ProcessRunners(**settings)


def test_the_settings_file_says_what_the_class_does() -> None:
    path = Path(__file__).parents[3] / "configs/runner/processes.yaml"
    settings = yaml.safe_load(path.read_text())
    assert settings.pop("_target_") == "agl.runners.processes.ProcessRunners"
    assert ProcessRunners(**settings).__dict__ == ProcessRunners().__dict__


@pytest.mark.parametrize("runners", [ProcessRunners(), RemoteRunners()])
def test_runners_elsewhere_need_a_store_that_can_be_reached(runners: Runners) -> None:
    assert isinstance(runners, Runners)
    assert runners.needs_store_url


async def test_a_store_that_is_not_served_is_refused(store) -> None:
    with pytest.raises(ConfigError, match="--store-url"):
        async with ProcessRunners().running(store, print):
            pass
