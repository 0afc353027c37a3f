"""The preflight finds what would make training pointless, before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_contexts import context_of
from scripted_worker import Script

from agl.algorithms.preflight import preflight
from agl.errors import RunStoppedError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptedRollout, RolloutConfig


async def note_of(script_of: object, tmp_path: Path) -> str:
    async with (
        InMemoryLightningStore() as store,
        context_of(store, tmp_path, script_of) as (context, notebook, _, _),  # type: ignore[arg-type]
    ):
        await preflight(context, sampling={}, config=RolloutConfig())
        return notebook.notes[0]


async def test_a_healthy_agent_is_summed_up_in_one_line(tmp_path: Path) -> None:
    line = await note_of(lambda _: Script(reward=0.5, calls=[([1], [2]), ([1, 2], [3])]), tmp_path)
    assert line == (
        "preflight: 8 calls in 4 rollouts, 8 with exact ids, first reward 0.5, 4 sequences after merging"
    )


async def test_a_task_that_fails_is_mentioned_and_does_not_stop_the_run(tmp_path: Path) -> None:
    def one_fails(claim: AttemptedRollout) -> Script:
        return Script(error="ValueError") if claim.rollout.task == 0 else Script(reward=1.0)

    assert (await note_of(one_fails, tmp_path)).endswith("1 of 4 failed")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(error="ValueError"), "none of 4 rollouts succeeded; the first: ValueError"),
        (Script(reward=None), "no reward"),
        (Script(reward=1.0, calls=[]), "no model call through the proxy"),
        (Script(reward=1.0, calls=[([1], [])]), r"no call has exact token ids .*empty_response \(4\)"),
    ],
)
async def test_what_makes_training_pointless_stops_the_run_with_the_reason(
    script: Script, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RunStoppedError, match=reason):
        await note_of(lambda _: script, tmp_path)
