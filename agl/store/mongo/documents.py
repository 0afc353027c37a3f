"""Rollout documents and records: what one rollout is in MongoDB, and how it is read.

A rollout is one document, with its attempts inside: ``open`` is the attempt under way, ``past`` are those that ended.
So every change of a rollout and its attempt is the change of one document, which MongoDB makes atomically. ``rev``
counts the changes that decisions depend on.

``lease`` and ``deadline`` are points in time while an attempt is under way. While the rollout waits in the queue they
are durations, so that a claim, which does not know them, makes points in time of them by adding the time (``NEVER``
stays NEVER). A rollout that pauses before its next attempt has ``retry_at`` and is not ``queued``. ``spans.N`` is the
highest sequence id given out in attempt N.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from agl.errors import InvalidRequestError
from agl.store import lifecycle
from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    ErrorInfo,
    Rollout,
    RolloutConfig,
    RolloutRequest,
)

Document = dict[str, Any]
NEVER = 1e300
"""A lease or deadline that does not come: finite, so that adding a time to it leaves it as it is."""
OPEN = ("preparing", "running")
TERMINAL = ("succeeded", "failed", "cancelled")
WITHOUT_TASK = {"task": 0, "metadata": 0}
"""Projection: what decides about a rollout, without what may be large."""


def json_text(value: object, what: str) -> str:
    """Return a value as JSON text. Keys with dots and dollars are safe in it, and huge numbers are refused.

    Raises:
        InvalidRequestError: it is not JSON.
    """
    try:
        return orjson.dumps(value).decode("utf-8")
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from error


@lru_cache(maxsize=1024)
def config_from_text(text: str) -> RolloutConfig:
    """Return the config that is stored as this text. Shared by rollouts, for it is immutable."""
    return RolloutConfig.model_validate_json(text)


def point(moment: float | None) -> float:
    """Return a lease, a deadline or a duration as stored."""
    return NEVER if moment is None else moment


def durations(config: RolloutConfig) -> Document:
    """Return lease and deadline of a rollout that waits in the queue."""
    due = lifecycle.next_deadline(config, started_at=0.0, lease=config.unresponsive_seconds)
    return {"lease": point(config.unresponsive_seconds), "deadline": point(due)}


def present(fields: Document) -> Document:
    """Return the fields that are not None: a missing field is read as None, and an index leaves it out."""
    return {name: value for name, value in fields.items() if value is not None}


def pending_document(request: RolloutRequest, *, rollout_id: str, number: int, now: float) -> Document:
    """Return the document of a request that joins the queue as number ``number``."""
    return present(
        {
            "_id": rollout_id,
            "position": number,
            "place": number,
            "queued": True,
            "run_id": request.run_id,
            "task": json_text(request.task, f"task of rollout {rollout_id}"),
            "mode": request.mode,
            "group_id": request.group_id,
            "resources_id": request.resources_id,
            "config": request.config.model_dump_json(),
            "metadata": json_text(request.metadata, f"metadata of rollout {rollout_id}"),
            "priority": request.priority,
            "status": "pending",
            "created_at": now,
            "num_attempts": 0,
            "rev": 0,
            **durations(request.config),
        }
    )


def rollout_of(document: Document) -> Rollout:
    """Return the rollout of a document."""
    error = document.get("error")
    return Rollout(
        rollout_id=document["_id"],
        run_id=document.get("run_id"),
        task=orjson.loads(document["task"]),
        mode=document["mode"],
        group_id=document.get("group_id"),
        resources_id=document.get("resources_id"),
        config=config_from_text(document["config"]),
        metadata=orjson.loads(document["metadata"]),
        priority=document["priority"],
        status=document["status"],
        reward=document.get("reward"),
        reward_dimensions=orjson.loads(document.get("reward_dimensions", "{}")),
        error=None if error is None else ErrorInfo.model_validate_json(error),
        created_at=document["created_at"],
        started_at=document.get("started_at"),
        finished_at=document.get("finished_at"),
        num_attempts=document["num_attempts"],
        retry_at=document.get("retry_at"),
    )


def open_attempt(document: Document) -> Attempt | None:
    """Return the attempt under way, None when there is none."""
    one = document.get("open")
    if one is None:
        return None
    return Attempt(
        attempt_id=one["attempt_id"],
        rollout_id=document["_id"],
        sequence_id=document["num_attempts"],
        worker_id=one.get("worker_id"),
        status=document["status"],
        started_at=one["started_at"],
        last_heartbeat_at=one["heard_at"],
        lease=None if document["lease"] >= NEVER else document["lease"],
    )


def past_attempt(rollout_id: str, one: Document) -> Attempt:
    """Return an attempt that ended."""
    error = one.get("error")
    return Attempt(
        attempt_id=one["attempt_id"],
        rollout_id=rollout_id,
        sequence_id=one["number"],
        worker_id=one.get("worker_id"),
        status=one["status"],
        started_at=one["started_at"],
        last_heartbeat_at=one["heard_at"],
        finished_at=one["finished_at"],
        error=None if error is None else ErrorInfo.model_validate_json(error),
    )


def placed_attempts(document: Document) -> list[tuple[int, Attempt]]:
    """Return every attempt with its position among all attempts of the store, oldest first."""
    attempts = [
        (int(one["position"]), past_attempt(document["_id"], one)) for one in document.get("past", ())
    ]
    under_way = open_attempt(document)
    if under_way is not None:
        attempts.append((int(document["open"]["position"]), under_way))
    return attempts


def latest_attempt(document: Document) -> Attempt | None:
    """Return the newest attempt, None when there is none."""
    attempts = placed_attempts(document)
    return attempts[-1][1] if attempts else None


def find_attempt(document: Document, attempt_id: str) -> tuple[Attempt, str | None] | None:
    """Return an attempt, and the digest of the report that ended it."""
    for one in document.get("past", ()):
        if one["attempt_id"] == attempt_id:
            return past_attempt(document["_id"], one), one.get("ended_by")
    under_way = open_attempt(document)
    return (under_way, None) if under_way is not None and under_way.attempt_id == attempt_id else None


def held_of(document: Document, attempt_id: str) -> AttemptedRollout | None:
    """Return a rollout with one of its attempts."""
    found = find_attempt(document, attempt_id)
    return None if found is None else AttemptedRollout(rollout=rollout_of(document), attempt=found[0])


def is_due(document: Document, now: float) -> bool:
    """Return whether the time of the attempt under way is up."""
    return "open" in document and document["deadline"] <= now


def workers_of(document: Document) -> list[str]:
    """Return who holds or held the rollout."""
    attempts = [*document.get("past", ()), document.get("open", {})]
    return sorted({one["worker_id"] for one in attempts if "worker_id" in one})


def slot_prefix(worker_id: str, request_id: str) -> str:
    """Return how the slots of a dequeue begin: the unique names under which it claims its rollouts."""
    return f"{len(worker_id)}:{worker_id}{request_id}#"


def ended_entry(document: Document, attempt: Attempt, ended_by: str | None) -> Document:
    """Return the entry of ``past`` for the attempt under way, which ended."""
    one = document["open"]
    return present(
        {
            "attempt_id": attempt.attempt_id,
            "number": attempt.sequence_id,
            "position": one["position"],
            "worker_id": attempt.worker_id,
            "status": attempt.status,
            "started_at": attempt.started_at,
            "heard_at": attempt.last_heartbeat_at,
            "finished_at": attempt.finished_at,
            "error": None if attempt.error is None else attempt.error.model_dump_json(),
            "ended_by": ended_by,
            "slot": one.get("slot"),
        }
    )


def end_counter(status: AttemptStatus) -> str:
    """Return the field that counts the rollout's attempts with this end, for statistics."""
    return f"ends.{status}"
