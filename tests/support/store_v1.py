"""Store files as version 1 of the schema made them, with the records that must come out of them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson

from agl.store.sqlite.connection import APPLICATION_ID
from agl.types import NamedResources, Rollout, Span, SpanEvent
from agl.types.packing import packed_floats, packed_ids

SCHEMA = Path(__file__).parents[1] / "data" / "store_v1.sql"
PROMPT = "You answer questions about the database. " * 40
CONFIG = '{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_on":["failed"]}'
SPANS_A_ROLLOUT = 8


@dataclass(slots=True, kw_only=True)
class Records:
    """What a file of version 1 holds."""

    rollouts: list[Rollout]
    spans: list[Span]
    strays: list[Span]
    resources: list[NamedResources]


def write_store_v1(db: sqlite3.Connection, *, num_spans: int, seed: int = 1) -> Records:
    """Make a store of version 1 with finished rollouts, their spans, resources and a few spans of nobody."""
    rng = Random(seed)
    db.executescript(SCHEMA.read_text(encoding="utf-8"))
    db.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
        "INSERT INTO identity VALUES ('6e1e2f0c-0000-4000-8000-000000000001', 1.0);"
    )
    db.execute("BEGIN")
    resources = NamedResources(
        resources_id="rs", version=1, resources={"prompt": PROMPT, "odd": "\x7f"}, created_at=2.0
    )
    db.execute(
        "INSERT INTO resources VALUES (1, 'rs', NULL, ?, 2.0)", (_json(resources.model_dump()["resources"]),)
    )
    records = Records(rollouts=[], spans=[], strays=[], resources=[resources])
    for number in range(num_spans // SPANS_A_ROLLOUT):
        _add_rollout(db, records, number, rng)
    for number in range(3):
        span = _span(number, rng).model_copy(update={"trace_id": f"stray {number}"})
        _insert_span(db, 10_000_000 + number, span, rollout=None, attempt=0, sequence_id=10_000_000 + number)
        records.strays.append(span)
    db.execute("COMMIT")
    return records


def _add_rollout(db: sqlite3.Connection, records: Records, number: int, rng: Random) -> None:
    first = 1 + number * (SPANS_A_ROLLOUT + 2)
    rollout = Rollout(
        rollout_id=f"ro-{number}",
        task={"question": f"how many? {number}", "system": PROMPT} if number % 20 else None,
        mode="train",
        resources_id="rs",
        config=orjson.loads(CONFIG),
        metadata={"looks like": "\x7f\x7f1\x7f"} if number % 10 == 0 else {},
        status="succeeded",
        reward=number / 4,
        created_at=10.0 + number,
        started_at=11.0 + number,
        finished_at=12.0 + number,
        num_attempts=1,
    )
    db.execute(
        "INSERT INTO rollout VALUES (?, ?, NULL, ?, 'train', NULL, 'rs', ?, ?, 0, 'succeeded', ?, '{}', NULL,"
        " ?, ?, ?, 1, NULL)",
        (
            first,
            rollout.rollout_id,
            _json(rollout.task),
            CONFIG,
            _json(rollout.metadata),
            rollout.reward,
            rollout.created_at,
            rollout.started_at,
            rollout.finished_at,
        ),
    )
    db.execute(
        "INSERT INTO attempt VALUES (?, ?, ?, 1, 'w', 'succeeded', 11.0, 12.0, 12.0, NULL, NULL, NULL, NULL, 'x', ?)",
        (first + 1, f"at-{number}", first, SPANS_A_ROLLOUT + 1),
    )
    for part in range(SPANS_A_ROLLOUT):
        span = _span(SPANS_A_ROLLOUT * number + part, rng)
        _insert_span(db, first + 2 + part, span, rollout=first, attempt=first + 1, sequence_id=part + 1)
        ids = {"rollout_id": rollout.rollout_id, "attempt_id": f"at-{number}", "sequence_id": part + 1}
        records.spans.append(span.model_copy(update=ids))
    records.rollouts.append(rollout)


def _span(number: int, rng: Random) -> Span:
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": f"how many? {number}"}]
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": _json(messages),
        "agl.prompt_token_ids": packed_ids(rng.choices(range(150_000), k=100)),
        "agl.response_token_ids": packed_ids(rng.choices(range(150_000), k=20)),
        "agl.response_logprobs": packed_floats([-rng.random() for _ in range(20)]),
    }
    if number % 100 == 0:
        attributes |= {
            "odd": "\x7f0",
            "agl.prompt_token_ids.1": "no base64",
            "nested": ["\x7f\x7f1\x7f", PROMPT],
        }
    return Span(
        span_id=f"{number:016x}",
        trace_id=f"{number // SPANS_A_ROLLOUT:032x}",
        name="chat policy",
        attributes=attributes,
        events=(SpanEvent(name="e", time_ns=1, attributes={"long": PROMPT}),) if number % 7 == 0 else (),
        resource={"service.name": "agent \x7f"} if number % 11 == 0 else {},
        start_time_ns=number,
        end_time_ns=number + 1,
    )


def _insert_span(
    db: sqlite3.Connection, position: int, span: Span, *, rollout: int | None, attempt: int, sequence_id: int
) -> None:
    hex_id = len(span.trace_id) == 32
    db.execute(
        "INSERT INTO span VALUES (?, ?, ?, NULL, ?, ?, NULL, ?, ?, ?, NULL, ?, ?, NULL, ?, ?, ?)",
        (
            position,
            bytes.fromhex(span.trace_id) if hex_id else span.trace_id,
            bytes.fromhex(span.span_id),
            rollout,
            attempt,
            sequence_id,
            span.name,
            span.kind,
            _json(span.attributes),
            _json([event.model_dump() for event in span.events]) if span.events else None,
            _json(span.resource) if span.resource else None,
            span.start_time_ns,
            span.end_time_ns,
        ),
    )


def _json(value: object) -> str:
    return orjson.dumps(value).decode("utf-8")
