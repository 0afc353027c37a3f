"""What agl replay says."""

from __future__ import annotations

import json

from agl.cli.replay_report import Replayed, lines_of
from agl.launch.replaying import CallDifference, Likeness, SpanDifference
from agl.types import ErrorInfo, Rollout


def report(**changes: object) -> Replayed:
    like = Likeness(num_calls=2, replayed=2, calls=[], spans=[], transcript=[])
    before = Rollout(rollout_id="r", task=1, status="succeeded", reward=1.0, created_at=0.0)
    after = before.model_copy(update={"rollout_id": "replay-1-0", "reward": 0.5})
    values: dict[str, object] = {
        "before": before,
        "after": after,
        "likeness": like,
        "model_calls": 0,
        "from_call": None,
        "where": "store.sqlite",
    }
    return Replayed(**{**values, **changes})  # type: ignore[arg-type]


def test_an_identical_replay_is_six_lines() -> None:
    assert lines_of(report(), 80) == [
        "Replay      replay-1-0",
        "Of          r",
        "Ended       succeeded (then succeeded)",
        "Reward      0.5 (then 1)",
        "Calls       2 of 2 recorded calls replayed, 0 calls to the model",
        "Spans       identical, but for ids and times",
    ]


def test_what_differs_is_shown_within_the_line_and_without_control_characters() -> None:
    calls = [
        CallDifference(
            number=2,
            agent="writer\x1b[2J",
            why="call 2 asks something else than the record",
            lines=["-user: \x1b]0;title\x07" + "x" * 100, "+user: y"],
        )
    ]
    spans = [SpanDifference(name="agl.message", side="replay", attributes=["a" * 100])] * 7
    like = Likeness(
        num_calls=2,
        replayed=1,
        calls=calls,
        spans=spans,
        transcript=["--- record", "+++ replay", *["+x"] * 50],
    )
    for width in (60, 80, 140):
        lines = lines_of(report(likeness=like, model_calls=1), width)
        text = " ".join("\n".join(lines).split())
        assert max(map(len, lines)) <= width
        assert all(line.isprintable() for line in lines)
        assert "(agent writer [2J)" in text
        assert "1 call to the model" in text
        assert "... and 2 more spans (--json has all)" in text
        assert "... and 12 more lines (--json has all)" in text
        assert "--- record" not in text


def test_json_has_all_of_it() -> None:
    error = ErrorInfo(cause="Boom", message="bang", traceback="Traceback ...")
    after = Rollout(rollout_id="n", run_id="replay-1", task=1, status="failed", error=error, created_at=0.0)
    calls = [CallDifference(number=1, agent=None, why="w", lines=["+x"])]
    like = Likeness(num_calls=1, replayed=0, calls=calls, spans=[], transcript=[])
    found = json.loads(json.dumps(report(after=after, likeness=like, from_call=1).as_json()))
    assert found["status"] == {"before": "succeeded", "after": "failed"}
    assert found["error"] == {"cause": "Boom", "message": "bang"}
    assert found["calls"] == [{"number": 1, "agent": None, "why": "w", "lines": ["+x"]}]
    assert (found["from_call"], found["run_id"], found["store"]) == (1, "replay-1", "store.sqlite")
