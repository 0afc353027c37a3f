from __future__ import annotations

import random
from typing import Any

import bson
import orjson
import pytest
from fake_mongo import Crash, FakeMongo
from hypothesis import given
from hypothesis import strategies as st

from agl.store.cutting import LONG
from agl.store.mongo import MongoStore, large
from agl.store.mongo.access import Access
from agl.types import RolloutRequest, Span, SpanEvent, SpanQuery
from agl.types.attributes import PROMPT_TOKEN_IDS, RESPONSE_LOGPROBS, RESPONSE_TOKEN_IDS
from agl.types.packing import packed_floats, packed_ids

TEXT = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from(["x" * LONG, '"' + "y" * LONG + '"', "[", '","', "\x7f", "\x7f\x7f1\x7f"]),
    ),
    max_size=8,
).map("".join)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
NUMBERS = iter(range(10**9))


def span(**fields: Any) -> Span:
    base = {"span_id": f"{next(NUMBERS):016x}", "trace_id": "ab" * 16, "name": "n", "start_time_ns": 1}
    return Span(**(base | fields))


@given(value=JSON)
def test_what_is_stowed_comes_back(value: Any) -> None:
    pieces: large.Pieces = {}
    stored = orjson.loads(orjson.dumps(large.stowed(value, pieces)))
    assert large.filled(stored, pieces) == value
    assert not pieces or all(len(name) == 32 for name in pieces)


async def test_an_image_in_many_spans_is_stored_once(store: MongoStore, database: FakeMongo) -> None:
    image = random.Random(1).randbytes(20_000).hex()
    spans = [
        span(attributes={"messages": orjson.dumps([{"image": image}, {"n": number}]).decode()})
        for number in range(5)
    ]
    await store.add_many_spans(spans[:3])
    await store.add_many_spans(spans[3:])
    assert list((await store.query_spans(SpanQuery())).items) == spans
    assert [blob["text"] for blob in database["blobs"].documents.values()] == [image]
    assert sum(len(bson.encode(one)) for one in database["spans"].documents.values()) < 5000
    found = await store.query_spans(SpanQuery(attributes=spans[4].attributes))
    assert list(found.items) == spans[4:]


async def test_long_texts_of_events_and_resources_come_back(store: MongoStore) -> None:
    given_span = span(
        attributes={"a": "\x7f", "b": ["x" * 3000]},
        events=(SpanEvent(name="e", time_ns=1, attributes={"k": "y" * 3000}),),
        resource={"r": "z" * 3000},
    )
    assert await store.add_span(given_span) == given_span
    assert list((await store.query_spans(SpanQuery())).items) == [given_span]
    assert await store.add_span(given_span) == given_span


async def test_a_token_takes_less_than_ten_bytes(store: MongoStore, database: FakeMongo) -> None:
    chance = random.Random(2)
    count = 2000
    call = span(
        attributes={
            PROMPT_TOKEN_IDS: packed_ids(chance.randrange(150_000) for _ in range(count)),
            RESPONSE_TOKEN_IDS: packed_ids(chance.randrange(150_000) for _ in range(count)),
            RESPONSE_LOGPROBS: packed_floats(-chance.random() for _ in range(count)),
            f"{RESPONSE_LOGPROBS}.1": "no base64",
        }
    )
    await store.add_span(call)
    (document,) = database["spans"].documents.values()
    assert (
        len(bson.encode(document)) < 10 * count + 1000
    )  # an id in the prompt, an id and a logprob in the answer
    assert list((await store.query_spans(SpanQuery())).items) == [call]


async def test_only_what_no_span_names_and_nobody_needed_lately_is_forgotten(
    store: MongoStore, access: Access, database: FakeMongo, clock: Any
) -> None:
    for name in ("old", "both"):
        held = await store.start_rollout(RolloutRequest(task="t", rollout_id=name))
        key = {"rollout_id": name, "attempt_id": held.attempt.attempt_id}
        await store.add_span(span(attributes={"a": "x" * 2000, "b": name * 1000}, **key))
        await store.update_attempt(name, held.attempt.attempt_id, status="succeeded")
        clock.now += 10.0
    assert len(database["blobs"].documents) == 3
    assert await store.delete_spans(finished_before=1005.0) == 1
    assert len(database["blobs"].documents) == 3  # needed a moment ago
    clock.now += large.FORGET_SECONDS
    await large.forget(access)
    assert sorted(blob["text"][0] for blob in database["blobs"].documents.values()) == ["b", "x"]
    clock.now += large.FORGET_SECONDS
    assert await store.add_span(span(attributes={"a": "x" * 2000})) is not None  # noted as needed again
    await store.delete_spans(finished_before=clock.now)
    assert [blob["text"][0] for blob in database["blobs"].documents.values()] == ["x"]


@pytest.mark.parametrize("writes", range(6))
async def test_a_span_is_never_without_its_texts(store: MongoStore, database: FakeMongo, writes: int) -> None:
    given_span = span(attributes={"a": "x" * 2000, "b": "y" * 2000})
    database.crash_after(writes)
    try:
        await store.add_span(given_span)
    except Crash:
        assert writes < 3
    database.crash_after(None)
    assert list((await store.query_spans(SpanQuery())).items) in ([], [given_span])
