from __future__ import annotations

from typing import Any

from fake_mongo import FakeMongo

from agl.store import lifecycle
from agl.store.mongo import updates
from agl.store.mongo.changing import held_open
from agl.store.mongo.documents import NEVER, pending_document
from agl.types import ErrorInfo, RolloutConfig, RolloutRequest

CONFIG = RolloutConfig(timeout_seconds=50, unresponsive_seconds=10, max_attempts=2)


async def stored(database: FakeMongo, update: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the one rollout's document after an update."""
    rollouts = database["rollouts"]
    if not rollouts.documents:
        request = RolloutRequest(task="t", rollout_id="ro", config=CONFIG)
        await rollouts.insert_one(pending_document(request, rollout_id="ro", number=1, now=1.0))
    if update is not None:
        await rollouts.update_one({"_id": "ro"}, update)
    document = await rollouts.find_one({"_id": "ro"})
    assert document is not None
    return document


def claiming(attempt_id: str, now: float) -> dict[str, Any]:
    return updates.claiming(
        attempt_id=attempt_id, worker_id="w", slot=f"s{attempt_id}", position=int(now), now=now
    )


async def test_a_claim_makes_points_in_time_of_durations(database: FakeMongo) -> None:
    await stored(database)
    document = await stored(database, claiming("at-1", 100.0))
    held = held_open(document)
    assert (document["lease"], document["deadline"]) == (110.0, 110.0)
    assert (held.attempt.lease, held.attempt.sequence_id, held.rollout.started_at) == (110.0, 1, 100.0)
    assert "queued" not in document


async def test_a_claim_taken_back_leaves_the_document_as_it_was(database: FakeMongo) -> None:
    before = await stored(database)
    claimed = await stored(database, claiming("at-1", 100.0))
    claimed["open"]["pinned"] = True
    claimed["resources_id"] = "rs"
    database["rollouts"].documents["ro"] = claimed
    after = await stored(database, updates.returning(claimed))
    assert after.pop("rev") == before.pop("rev") + 2
    assert after == before


async def test_a_retry_taken_back_leaves_the_first_attempt(database: FakeMongo) -> None:
    await stored(database)
    held = held_open(await stored(database, claiming("at-1", 100.0)))
    report = lifecycle.AttemptReport(status="failed", error=ErrorInfo(cause="boom"))
    ended = lifecycle.ended(held, report, now=105.0)
    document = await stored(database)
    before = await stored(
        database, updates.change(document, ended.rollout, ended.attempt, place=7, ended_by=report.digest())
    )
    assert (before["status"], before["place"], before["queued"], before["lease"]) == (
        "requeuing",
        7,
        True,
        10.0,
    )
    assert [one["status"] for one in before["past"]] == ["failed"]
    assert before["ends"] == {"failed": 1}
    claimed = await stored(database, claiming("at-2", 200.0))
    assert (claimed["num_attempts"], claimed["started_at"], claimed["first"], claimed["last"]) == (
        2,
        100.0,
        100,
        200,
    )
    after = await stored(database, updates.returning(claimed))
    assert after.pop("rev") == before.pop("rev") + 2
    assert after == before


async def test_a_sign_of_life_changes_only_what_it_was_computed_from(database: FakeMongo) -> None:
    await stored(database)
    claimed = await stored(database, claiming("at-1", 100.0))
    where, update = updates.alive(claimed, now=104.0)
    assert await database["rollouts"].find_one_and_update(where, update) is not None
    running = await stored(database)
    assert (running["status"], running["lease"], running["open"]["heard_at"]) == ("running", 114.0, 104.0)
    assert running["rev"] == claimed["rev"] + 1
    assert await database["rollouts"].find_one_and_update(where, update) is None  # it is running by now
    where, update = updates.alive(running, now=114.0)
    assert await database["rollouts"].find_one_and_update(where, update) is None  # too late by then


async def test_the_end_leaves_no_lease_and_no_place(database: FakeMongo) -> None:
    await stored(database)
    held = held_open(await stored(database, claiming("at-1", 100.0)))
    report = lifecycle.AttemptReport(status="succeeded", reward=0.5, worker_id="w2")
    ended = lifecycle.ended(held, report, now=105.0)
    document = await stored(database)
    over = await stored(
        database, updates.change(document, ended.rollout, ended.attempt, place=None, ended_by="d")
    )
    assert not {"queued", "open", "lease", "deadline"} & set(over)
    assert (over["reward"], over["workers"], over["past"][0]["worker_id"]) == (0.5, ["w2"], "w2")


async def test_without_limits_a_claim_is_never_due(database: FakeMongo) -> None:
    request = RolloutRequest(task="t")
    await database["rollouts"].insert_one(pending_document(request, rollout_id="ro", number=1, now=1.0))
    claimed = await stored(database, claiming("at-1", 1.7e9))
    assert claimed["deadline"] == claimed["lease"] == NEVER
    assert held_open(claimed).attempt.lease is None
