"""Records of a run, as a store that saw it would have them, for what reads and copies records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agl.store.restoring import Restores
from agl.store.sqlite import SqliteStore
from agl.types import Attempt, ErrorInfo, RecordedRollout, Run, Span, SpanEvent, SpanLink, SpanStatus
from agl.types import attributes as key
from agl.types.packing import packed_floats, packed_ids

RUN = Run(
    run_id="r1",
    name="n",
    command="train",
    settings={"algorithm": {"group_size": 4}},
    git_commit="abc",
    status="succeeded",
    created_at=1.5,
    finished_at=99.0,
)


def rollout(
    number: int, *, reward: float | None = 1.0, status: str = "succeeded", **fields: Any
) -> RecordedRollout:
    """A rollout of the run with one attempt that ended as it did."""
    rollout_id = f"ro-{number}"
    attempt = Attempt(
        attempt_id=f"at-{number}",
        rollout_id=rollout_id,
        sequence_id=1,
        worker_id="w",
        status="succeeded" if status == "succeeded" else "failed",
        started_at=10.0 + number,
        last_heartbeat_at=11.0 + number,
        finished_at=12.0 + number,
        error=None if status == "succeeded" else ErrorInfo(cause="ValueError", message="m"),
    )
    known: dict[str, Any] = {
        "run_id": "r1",
        "task": {"question": f"q{number}"},
        "reward_dimensions": {} if reward is None else {"main": reward},
        "created_at": 10.0 + number,
        "started_at": 10.0 + number,
        "finished_at": 12.0 + number,
        "num_attempts": 1,
        "attempts": (attempt,),
        "error": attempt.error,
    }
    return RecordedRollout(rollout_id=rollout_id, status=status, reward=reward, **(known | fields))


def span(number: int, place: int, name: str = "step", **fields: Any) -> Span:
    """The span with this place in the attempt of a rollout; it has something in every field."""
    known: dict[str, Any] = {
        "trace_id": f"{number + 1:032x}",
        "span_id": f"{place:016x}",
        "parent_id": None if place == 1 else f"{1:016x}",
        "kind": "client",
        "status": SpanStatus(code="error", description="ä bad\nend"),
        "attributes": {"n": place, "x": 1.0, "none": None, "deep": {"a": [1, 2.5, "é", True, None, {}]}},
        "events": (SpanEvent(name="e", time_ns=5, attributes={"k": [1]}),),
        "links": (SpanLink(trace_id="ab" * 16, span_id="cd" * 8, attributes={"l": "m"}),),
        "resource": {"service.name": "agent", "pid": 7},
        "start_time_ns": 1_700_000_000_000_000_000 + place,
        "end_time_ns": 1_700_000_000_000_000_100 + place,
        "rollout_id": f"ro-{number}",
        "attempt_id": f"at-{number}",
        "sequence_id": place,
    }
    return Span(name=name, **(known | fields))


def call(
    number: int,
    place: int,
    messages: Sequence[dict[str, Any]],
    answer: dict[str, Any],
    *,
    tools: Sequence[dict[str, Any]] = (),
    ids: tuple[Sequence[int], Sequence[int]] | None = None,
    **attributes: Any,
) -> Span:
    """A recorded call; ``ids`` are those of prompt and answer, None where the server gave none."""
    exact = (
        {key.MISSING_IDS_CAUSE: "no_token_ids"}
        if ids is None
        else {
            key.PROMPT_TOKEN_IDS: packed_ids(ids[0]),
            key.RESPONSE_TOKEN_IDS: packed_ids(ids[1]),
            key.RESPONSE_LOGPROBS: packed_floats([-0.5] * len(ids[1])),
        }
    )
    said = {
        key.INPUT_MESSAGES: json.dumps(list(messages)),
        key.OUTPUT_MESSAGES: json.dumps([answer]),
        key.FINISH_REASONS: ["stop"],
        key.TEMPERATURE: 1.0,
        **({key.TOOL_DEFINITIONS: json.dumps(list(tools))} if tools else {}),
    }
    return span(number, place, "chat policy", status=SpanStatus(), attributes=said | exact | attributes)


async def store_file(
    folder: Path,
    *,
    rollouts: Sequence[RecordedRollout],
    spans: Sequence[Span] = (),
    runs: Sequence[Run] = (RUN,),
) -> Path:
    """Write a run's folder with these records, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    async with SqliteStore(str(folder / "store.sqlite")) as store:
        assert isinstance(store, Restores)
        await store.restore(runs=runs, rollouts=rollouts, spans=spans)
    return folder
