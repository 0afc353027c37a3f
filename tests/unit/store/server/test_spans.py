from __future__ import annotations

from typing import Any

import httpx
import pytest
from served_stores import START, served

from agl.store.sqlite import SqliteStore
from agl.types import RolloutRequest, Span, SpanQuery
from agl.types.tokens import scoped_token


def span(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "span_id": f"{number:016x}",
        "trace_id": "c" * 32,
        "name": f"call {number}",
        "start_time_ns": number,
    } | fields


@pytest.fixture
async def attempt(store: SqliteStore) -> dict[str, str]:
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="ro"))
    return {"rollout_id": "ro", "attempt_id": held.attempt.attempt_id}


async def test_spans_come_back_as_they_are_stored(client: httpx.AsyncClient, attempt: dict[str, str]) -> None:
    one = await client.post("/v1/spans", json=span(1, **attempt, attributes={"k": [1, None]}))
    many = await client.post("/v1/spans", json=[span(2, **attempt), span(3, **attempt)])

    assert Span.model_validate(one.json()).attributes == {"k": [1, None]}
    assert [one.json()["sequence_id"], *(stored["sequence_id"] for stored in many.json())] == [1, 2, 3]


async def test_the_short_answer_tells_the_sequence_ids(
    client: httpx.AsyncClient, attempt: dict[str, str]
) -> None:
    answer = await client.post("/v1/spans?answer=ids", json=[span(1, **attempt), span(2)])
    assert answer.json()["sequence_ids"] == [1, None]
    assert (await client.post("/v1/spans?answer=all", json=[])).status_code == 422


async def test_sequence_ids_are_allocated(client: httpx.AsyncClient, attempt: dict[str, str]) -> None:
    answer = await client.post("/v1/spans/sequence", json={"attempts": [attempt, attempt]})
    assert answer.json() == {"sequence_ids": [1, 2]}
    assert (await client.post("/v1/spans", json=span(1, **attempt))).json()["sequence_id"] == 3


async def test_spans_are_found_by_attribute(client: httpx.AsyncClient, attempt: dict[str, str]) -> None:
    await client.post("/v1/spans", json=[span(1, **attempt, attributes={"a": 1}), span(2, **attempt)])

    found = await client.get("/v1/spans", params={"rollout_id": "ro", "attributes": '{"a":1}'})

    assert [item["span_id"] for item in found.json()["items"]] == [f"{1:016x}"]
    latest = await client.get("/v1/spans?rollout_id=ro&attempt_id=latest&name_prefix=call")
    assert len(latest.json()["items"]) == 2


async def test_old_spans_are_deleted(
    client: httpx.AsyncClient, attempt: dict[str, str], store: SqliteStore
) -> None:
    await client.post("/v1/spans", json=span(1, **attempt))
    await store.cancel_rollout("ro")

    kept = await client.delete("/v1/spans", params={"finished_before": START - 1})
    gone = await client.delete("/v1/spans", params={"finished_before": START + 1})

    assert (kept.json(), gone.json()) == ({"deleted": 0}, {"deleted": 1})
    assert (await client.delete("/v1/spans")).status_code == 422


async def test_a_span_of_an_unknown_rollout_is_refused_with_all_others(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/spans", json=[span(1), span(2, rollout_id="unknown")])

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert (await client.get("/v1/spans")).json()["items"] == []


async def test_a_scoped_token_touches_its_own_spans_alone(
    store: SqliteStore, attempt: dict[str, str]
) -> None:
    other = await store.start_rollout(RolloutRequest(task=1, rollout_id="other"))
    foreign = {"rollout_id": "other", "attempt_id": other.attempt.attempt_id}
    token = scoped_token("admin", attempt["rollout_id"], attempt["attempt_id"])
    async with served(store, token="admin") as client:
        client.headers["authorization"] = f"Bearer {token}"

        assert (await client.post("/v1/spans", json=span(1, **attempt))).status_code == 200
        assert (await client.post("/v1/spans/sequence", json={"attempts": [attempt]})).status_code == 200
        assert len((await client.get("/v1/spans", params=attempt)).json()["items"]) == 1
        for refused in (
            await client.post("/v1/spans", json=span(2, **foreign)),
            await client.post("/v1/spans", json=[span(2, **attempt), span(3, **foreign)]),
            await client.post("/v1/spans", json=span(2)),
            await client.post("/v1/spans", json=span(2, rollout_id="ro")),
            await client.post("/v1/spans/sequence", json={"attempts": [attempt, foreign]}),
            await client.get("/v1/spans", params=foreign),
            await client.get("/v1/spans", params={"rollout_id": "ro"}),
            await client.get("/v1/spans"),
        ):
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert len((await store.query_spans(SpanQuery())).items) == 1
