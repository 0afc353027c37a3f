"""Updates of rollout documents: what a decision of ``lifecycle`` changes, as one update of one document. Pure."""

from __future__ import annotations

from typing import Any

from agl.store import lifecycle
from agl.store.mongo.documents import (
    Document,
    config_from_text,
    durations,
    end_counter,
    ended_entry,
    json_text,
    point,
    present,
    workers_of,
)
from agl.types import Attempt, AttemptedRollout, Rollout, RolloutConfig

_PLAIN = ("status", "resources_id", "priority", "reward", "started_at", "finished_at", "retry_at")


def opened_fields(held: AttemptedRollout, *, position: int) -> Document:
    """Return the fields of a rollout whose new attempt goes past the queue."""
    rollout, attempt = held.rollout, held.attempt
    return present(
        {
            "status": rollout.status,
            "resources_id": rollout.resources_id,
            "started_at": rollout.started_at,
            "num_attempts": rollout.num_attempts,
            "last": position,
            "lease": point(attempt.lease),
            "deadline": point(lifecycle.deadline(rollout.config, attempt)),
            "open": present(
                {
                    "attempt_id": attempt.attempt_id,
                    "position": position,
                    "worker_id": attempt.worker_id,
                    "started_at": attempt.started_at,
                    "heard_at": attempt.last_heartbeat_at,
                }
            ),
        }
    )


def started_document(pending: Document, held: AttemptedRollout, *, position: int) -> Document:
    """Return the document of a rollout that is made together with its first attempt."""
    document = pending | opened_fields(held, position=position)
    del document["queued"]
    document |= {"attempt_ids": [held.attempt.attempt_id], "first": position}
    if held.attempt.worker_id is not None:
        document["workers"] = [held.attempt.worker_id]
    return document


def opening(held: AttemptedRollout, *, position: int) -> Document:
    """Return the update that opens a new attempt of a queued rollout."""
    update: Document = {
        "$set": opened_fields(held, position=position),
        "$unset": {"queued": 1, "retry_at": 1},
        "$push": {"attempt_ids": held.attempt.attempt_id},
        "$min": {"first": position},
        "$inc": {"rev": 1},
    }
    if held.attempt.worker_id is not None:
        update["$addToSet"] = {"workers": held.attempt.worker_id}
    return update


def claiming(*, attempt_id: str, worker_id: str, slot: str | None, position: int, now: float) -> Document:
    """Return the update that claims a queued rollout whose document nobody has read: attempt and lease included."""
    attempt = {
        "attempt_id": attempt_id,
        "position": position,
        "worker_id": worker_id,
        "started_at": now,
        "heard_at": now,
        "slot": slot,
    }
    pushed = {"attempt_ids": attempt_id}
    if slot is not None:
        pushed["slots"] = slot
    return {
        "$set": {"status": "preparing", "open": present(attempt), "last": position},
        "$unset": {"queued": 1},
        "$inc": {"lease": now, "deadline": now, "num_attempts": 1, "rev": 1},
        "$push": pushed,
        "$addToSet": {"workers": worker_id},
        "$min": {"started_at": now, "first": position},
    }


def joining(place: int) -> Document:
    """Return the update that lets a rollout whose pause is over join the queue."""
    return {"$set": {"queued": True, "place": place}, "$unset": {"retry_at": 1}, "$inc": {"rev": 1}}


def returning(document: Document) -> Document:
    """Return the update that takes the attempt under way back, as if it had never been claimed."""
    one, number = document["open"], document["num_attempts"]
    without = {name: value for name, value in document.items() if name != "open"}
    past = document.get("past", ())
    fields: Document = {
        "status": "requeuing" if number > 1 else "pending",
        "queued": True,
        "num_attempts": number - 1,
        **durations(config_from_text(document["config"])),
        "last": past[-1]["position"] if past else None,
        "first": document["first"] if past else None,
        "started_at": document["started_at"] if number > 1 else None,
        "workers": workers_of(without) or None,
        "attempt_ids": [each for each in document["attempt_ids"] if each != one["attempt_id"]] or None,
        "slots": [each for each in document.get("slots", ()) if each != one.get("slot")] or None,
    }
    if one.get("pinned"):
        fields["resources_id"] = None
    return _update({"open": None, **fields}, {"rev": 1})


def alive(document: Document, *, now: float) -> tuple[Document, Document]:
    """Return filter and update of a sign of life of the attempt under way.

    The filter holds what the update was computed from; whatever else changes meanwhile does not matter.
    """
    config, one = config_from_text(document["config"]), document["open"]
    lease = lifecycle.lease_end(config, now)
    due = lifecycle.next_deadline(config, started_at=one["started_at"], lease=lease)
    where = {
        "_id": document["_id"],
        "open.attempt_id": one["attempt_id"],
        "status": document["status"],
        "config": document["config"],
        "deadline": {"$gt": now},
    }
    update: Document = {"$max": {"open.heard_at": now, "lease": point(lease), "deadline": point(due)}}
    if document["status"] == "preparing":
        update |= {"$set": {"status": "running"}, "$inc": {"rev": 1}}
    return where, update


def change(
    document: Document,
    new: Rollout,
    attempt: Attempt | None,
    *,
    place: int | None,
    ended_by: str | None,
) -> Document:
    """Return the update that makes the document's rollout ``new`` and its attempt under way ``attempt``.

    Args:
        document: as read, without task and metadata perhaps.
        new: the rollout as decided.
        attempt: the attempt under way as decided, still open or ended; None leaves it.
        place: where the rollout joins the queue, when it joins it.
        ended_by: digest of the report that ends the attempt.
    """
    fields: Document = {name: getattr(new, name) for name in _PLAIN}
    fields["config"] = new.config.model_dump_json()
    fields["reward_dimensions"] = (
        json_text(new.reward_dimensions, "reward_dimensions") if new.reward_dimensions else None
    )
    fields["error"] = None if new.error is None else new.error.model_dump_json()
    if "metadata" in document:
        fields["metadata"] = json_text(new.metadata, f"metadata of rollout {new.rollout_id}")
    update = _update(_changed(document, fields), {"rev": 1})
    if attempt is not None and "open" in document:
        if lifecycle.is_terminal(attempt.status):
            entry = ended_entry(document, attempt, ended_by)
            _merge(update, "$push", {"past": entry})
            _merge(update, "$unset", {"open": 1})
            _merge(update, "$inc", {end_counter(attempt.status): 1})
            if attempt.worker_id != document["open"].get("worker_id"):
                held = document | {"open": {"worker_id": attempt.worker_id}}
                _merge(update, "$set", {"workers": workers_of(held)})
        else:
            _merge(update, "$set", _open_fields(document, new.config, attempt))
    _merge(update, "$set", _queue_fields(new, place))
    if new.status not in lifecycle.QUEUED:
        _merge(update, "$unset", {"queued": 1})
    if lifecycle.is_terminal(new.status):
        _merge(update, "$unset", {"lease": 1, "deadline": 1})
    return update


def _open_fields(document: Document, config: RolloutConfig, attempt: Attempt) -> Document:
    fields: Document = {
        "open.heard_at": attempt.last_heartbeat_at,
        "lease": point(attempt.lease),
        "deadline": point(lifecycle.deadline(config, attempt)),
    }
    if attempt.worker_id is not None and attempt.worker_id != document["open"].get("worker_id"):
        fields["open.worker_id"] = attempt.worker_id
        fields["workers"] = workers_of(document | {"open": {"worker_id": attempt.worker_id}})
    return fields


def _queue_fields(new: Rollout, place: int | None) -> Document:
    if new.status not in lifecycle.QUEUED:
        return {}
    fields = durations(new.config)
    if place is not None:
        fields |= {"queued": True, "place": place}
    return fields


def _changed(document: Document, fields: Document) -> Document:
    return {name: value for name, value in fields.items() if document.get(name) != value}


def _update(fields: Document, increments: Document) -> Document:
    """Return the update that sets the fields; None removes one."""
    update: Document = {"$inc": dict(increments)}
    kept = present(fields)
    gone = {name: 1 for name, value in fields.items() if value is None}
    if kept:
        update["$set"] = kept
    if gone:
        update["$unset"] = gone
    return update


def _merge(update: dict[str, Any], operator: str, fields: Document) -> None:
    if fields:
        update[operator] = update.get(operator, {}) | fields
