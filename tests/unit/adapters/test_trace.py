"""The adapter drops what cannot be trained and says why."""

from __future__ import annotations

import pytest
from recorded_spans import call_span

from agl.adapters.trace import TracerTraceToTriplet
from agl.errors import ConfigError
from agl.types import attributes as key

TWO_TURNS = [call_span(1, [1, 2], [3]), call_span(2, [1, 2, 3, 9], [4])]


def test_two_turns_become_one_sequence() -> None:
    adapted = TracerTraceToTriplet().adapt(TWO_TURNS)
    assert (adapted.num_calls, adapted.num_exact, len(adapted.trajectories)) == (2, 2, 1)


def test_without_merging_every_call_is_its_own_sequence() -> None:
    assert len(TracerTraceToTriplet(merge=False).adapt(TWO_TURNS).trajectories) == 2


def test_a_too_long_sequence_is_dropped_and_counted() -> None:
    adapted = TracerTraceToTriplet(max_tokens=4).adapt(TWO_TURNS)
    assert adapted.trajectories == []
    assert dict(adapted.dropped) == {"too_long": 1}


def test_missing_ids_are_counted_by_cause() -> None:
    adapted = TracerTraceToTriplet().adapt(
        [call_span(1, [1], [2], **{key.MISSING_IDS_CAUSE: "upstream_without_ids"})]
    )
    assert (adapted.num_calls, adapted.num_exact, dict(adapted.dropped)) == (
        1,
        0,
        {"upstream_without_ids": 1},
    )


def test_a_broken_agent_pattern_is_a_setting_error() -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        TracerTraceToTriplet(agents=["("])


@pytest.mark.parametrize("agents", [[], "writer"])
def test_agents_that_name_nobody_are_a_setting_error(agents: list[str]) -> None:
    with pytest.raises(ConfigError, match="agents"):
        TracerTraceToTriplet(agents=agents)
