from __future__ import annotations

import contextlib

import bson
import pytest
from fake_mongo import Crash, FakeMongo

from agl.errors import InvalidRequestError
from agl.store.mongo import batches
from agl.store.mongo.access import Access
from agl.store.mongo.documents import pending_document
from agl.types import RolloutRequest


def documents(access: Access, count: int, size: int = 10) -> list[bytes]:
    made = [
        pending_document(RolloutRequest(task="x" * size), rollout_id=f"ro-{number}", number=number, now=1.0)
        for number in range(count)
    ]
    return [batches.encoded(access, one, "rollout") for one in made]


async def test_a_batch_leaves_only_its_rollouts(access: Access, database: FakeMongo) -> None:
    await batches.insert(access, documents(access, 5))
    assert len(database["rollouts"].documents) == 5
    assert not database["batches"].documents


async def test_a_large_batch_is_written_in_parts_that_fit(access: Access, database: FakeMongo) -> None:
    access.document_bytes = batches.ENVELOPE_BYTES + 5000
    largest = 0

    data = documents(access, 20, size=1000)
    insert = database["batches"].insert_one

    async def measured(document: dict[str, object]) -> None:
        nonlocal largest
        largest = max(largest, len(bson.encode(document)))
        await insert(document)

    database["batches"].insert_one = measured  # type: ignore[method-assign]
    await batches.insert(access, data)
    assert 1000 < largest <= access.document_bytes
    assert len(database["rollouts"].documents) == 20
    assert not database["batches"].documents


@pytest.mark.parametrize("writes", range(30))
async def test_parts_count_only_with_the_document_that_names_them(
    access: Access, database: FakeMongo, writes: int
) -> None:
    access.document_bytes = batches.ENVELOPE_BYTES + 5000
    data = documents(access, 10, size=1000)
    database.crash_after(writes)
    with contextlib.suppress(Crash):
        await batches.insert(access, data)
    database.crash_after(None)
    await batches.recover(access, older_than=0.0)
    assert len(database["rollouts"].documents) in (0, 10)
    if database["rollouts"].documents:
        assert not database["batches"].documents


async def test_parts_without_a_decision_are_deleted_in_the_end(access: Access, database: FakeMongo) -> None:
    access.document_bytes = batches.ENVELOPE_BYTES + 5000
    database.crash_after(2)
    with pytest.raises(Crash):
        await batches.insert(access, documents(access, 20, size=1000))
    database.crash_after(None)
    await batches.recover(access, older_than=0.0)
    assert len(database["batches"].documents) == 2
    for part in database["batches"].documents.values():
        part["at"] -= batches.UNDECIDED_SECONDS + 1.0
    await batches.recover(access, older_than=0.0)
    assert not database["batches"].documents
    assert not database["rollouts"].documents


async def test_a_batch_at_work_is_left_to_its_writer_for_a_while(access: Access, database: FakeMongo) -> None:
    database.crash_after(1)
    with pytest.raises(Crash):
        await batches.insert(access, documents(access, 3))
    database.crash_after(None)
    await batches.recover(access, older_than=batches.ABANDONED_SECONDS)
    assert not database["rollouts"].documents
    await batches.recover(access, older_than=0.0)
    assert len(database["rollouts"].documents) == 3


async def test_what_a_document_cannot_hold_is_refused_with_its_name(access: Access) -> None:
    access.document_bytes = batches.ENVELOPE_BYTES + 100
    with pytest.raises(InvalidRequestError, match="span s has 2"):
        batches.encoded(access, {"a": "x" * 200}, "span s")
    for wrong in (2**70, "\ud800", object()):
        with pytest.raises(InvalidRequestError):
            batches.encoded(access, {"a": wrong}, "it")
