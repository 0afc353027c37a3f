"""Rollouts as a critic reads them."""

from __future__ import annotations

import json

from prompt_searches import proxied_call

from agl.algorithms.prompts.feedback import examples, shortened, transcript, worst_and_best
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ErrorInfo, Rollout, RolloutRequest, Span
from agl.types import attributes as key

ASKED = [
    {"role": "user", "content": "Book a room"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "rooms", "arguments": '{"day": 1}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "Ash\nElm"},
]


def rollout(name: str, reward: float | None, status: str = "succeeded") -> Rollout:
    return Rollout(rollout_id=name, task=1, status=status, reward=reward, created_at=0.0)  # type: ignore[arg-type]


def test_a_transcript_has_calls_of_tools_and_what_the_agent_noted() -> None:
    noted = Span(
        span_id="2" * 16,
        trace_id="t" * 32,
        name=key.MESSAGE_SPAN,
        attributes={key.MESSAGE_BODY: "right is Elm"},
        start_time_ns=2,
        rollout_id="r",
        attempt_id="a",
    )
    assert transcript([proxied_call("r", "a", ASKED, "Ash"), noted]) == (
        'user: Book a room\n\nassistant: calls rooms({"day": 1})\n\ntool: Ash\nElm\n\nassistant: Ash\n\n'
        "note: right is Elm"
    )


def test_a_long_transcript_loses_its_middle() -> None:
    assert shortened("a" * 50 + "b" * 50, 20) == "a" * 10 + "\n[... 80 characters left out ...]\n" + "b" * 10
    assert shortened("short", 20) == "short"


def test_a_critique_reads_failures_first_then_low_rewards_and_one_of_the_best() -> None:
    rollouts = [
        rollout("good", 1.0),
        rollout("low", 0.1),
        rollout("failed", None, "failed"),
        rollout("middle", 0.5),
        rollout("none", None),
    ]
    assert [one.rollout_id for one in worst_and_best(rollouts, 4)] == ["failed", "none", "low", "good"]
    assert [one.rollout_id for one in worst_and_best(rollouts, 1)] == ["failed"]
    assert len(worst_and_best(rollouts, 9)) == 5


def test_where_all_are_equal_the_first_are_read() -> None:
    rollouts = [rollout(name, 0.0) for name in "abc"]
    assert [one.rollout_id for one in worst_and_best(rollouts, 2)] == ["a", "b"]


async def test_examples_say_how_each_rollout_ended() -> None:
    async with InMemoryLightningStore() as store:
        ended = []
        for name in ("scored", "failed", "silent"):
            claim = await store.start_rollout(RolloutRequest(task=1, rollout_id=name))
            ids = (name, claim.attempt.attempt_id)
            await store.add_many_spans([proxied_call(*ids, ASKED, name)])
            done = await (
                store.update_attempt(
                    *ids, status="failed", error=ErrorInfo(cause="ValueError", message="no day")
                )
                if name == "failed"
                else store.update_attempt(*ids, status="succeeded", reward=0.5 if name == "scored" else None)
            )
            ended.append(done.rollout)
        found = await examples(store, ended, max_characters=1000)
    assert [(one.outcome, one.reward) for one in found] == [
        ("reward 0.5", 0.5),
        ("failed: ValueError: no day", None),
        ("gave no reward", None),
    ]
    assert found[0].transcript.endswith("assistant: scored")
    assert json.loads(json.dumps(found[0].as_json()))["outcome"] == "reward 0.5"
