"""The closing report says what changed, shows transcripts, and leads on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from recorded_spans import call_span

from agl.algorithms.base import RunResult
from agl.evaluation.counts import RolloutCounts, count_rollouts
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.statistics import mean_reward
from agl.outcome import outcome_of
from agl.store.sqlite import InMemoryLightningStore
from agl.types import Rollout, RolloutRequest
from agl.types import attributes as key


async def evaluation(store: InMemoryLightningStore, prefix: str, rewards: list[float]) -> Evaluation:
    rollouts: list[Rollout] = []
    for index, reward in enumerate(rewards):
        claim = await store.start_rollout(
            RolloutRequest(task={"question": index}, rollout_id=f"{prefix}-{index}")
        )
        span = call_span(
            1,
            [1],
            [2],
            **{
                key.INPUT_MESSAGES: json.dumps([{"role": "user", "content": f"question {index}"}]),
                key.OUTPUT_MESSAGES: json.dumps(
                    [{"role": "assistant", "content": f"{prefix} answer {index}"}]
                ),
            },
        )
        await store.add_otel_span(
            claim.rollout.rollout_id,
            claim.attempt.attempt_id,
            span.model_copy(update={"sequence_id": None, "trace_id": f"{prefix}{index}"}),
        )
        done = await store.update_attempt(
            claim.rollout.rollout_id, claim.attempt.attempt_id, status="succeeded", reward=reward
        )
        rollouts.append(done.rollout)
    return Evaluation(
        name="val/reward_greedy",
        reward=mean_reward([[reward] for reward in rewards]),
        counts=count_rollouts(rollouts),
        rollouts=[[rollout] for rollout in rollouts],
    )


async def test_the_report_has_the_gain_one_improved_transcript_and_the_next_commands(tmp_path: Path) -> None:
    counts = RolloutCounts(enqueued=9, succeeded=7, failed=Counter({"ValueError": 2}), without_reward=1)
    async with InMemoryLightningStore() as store:
        result = RunResult(
            before=[await evaluation(store, "before", [1.0, 0.0, 0.0])],
            after=[await evaluation(store, "after", [1.0, 1.0, 0.0])],
            counts=counts,
            policy_dir=tmp_path / "policy",
            checkpoint_dir=tmp_path / "checkpoints" / "iteration-000001",
            diagnosis=["entropy fell"],
        )
        outcome = await outcome_of(result, store=store, run_dir=tmp_path, name="test")
    text = "\n".join(outcome.lines())
    assert "greedy   before 0.333 [-0.320, 0.987]   after 0.667 [0.013, 1.320]   3 tasks" in text
    assert "9 enqueued = 7 succeeded + 2 failed + 0 cancelled; failed by cause: ValueError 2" in text
    assert "without reward: 1" in text
    assert "Note: entropy fell" in text
    assert [sample.title.split(":")[0] for sample in outcome.transcripts] == [
        "Improved",
        "Still wrong",
        "Kept",
    ]
    assert "before answer 1" in text
    assert "after answer 1" in text
    assert f"agl train --resume {tmp_path}" in text
    assert f"policy.path={tmp_path / 'policy'}" in text
