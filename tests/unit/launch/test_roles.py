"""The environment says which part of a run this process plays."""

from __future__ import annotations

import pytest

from agl.errors import ConfigError
from agl.launch.roles import Part, part_from


def test_a_role_meets_the_others_at_the_url_of_the_environment() -> None:
    part = part_from(
        {"AGL_CURRENT_ROLE": "runner", "AGL_STORE_URL": "http://a:1", "AGL_STORE_TOKEN": "s3cret"}
    )
    assert part == Part(role="runner", store_url="http://a:1", store_token="s3cret")
    assert "s3cret" not in repr(part)


def test_without_a_role_a_url_in_the_environment_says_nothing() -> None:
    """A program that an agent starts has it there; its own Trainer is no part of that run."""
    assert part_from({"AGL_STORE_URL": "http://a:1", "AGL_STORE_TOKEN": "s3cret"}) == Part()


def test_an_unknown_role_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="AGL_CURRENT_ROLE=learner: one of algorithm, runner, both"):
        part_from({"AGL_CURRENT_ROLE": "learner"})
