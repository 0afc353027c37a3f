from __future__ import annotations

import gzip
import logging
from typing import Any

import httpx
import orjson
import pytest
from served_stores import served

from agl.errors import ConfigError, StoreError, StoreUnavailableError
from agl.store import wire
from agl.store.server import create_app
from agl.store.sqlite import SqliteStore
from agl.types import Page, Rollout, RolloutQuery, RolloutRequest

JSON = {"content-type": "application/json"}


class FailingStore(SqliteStore):
    """Fails each read of a rollout."""

    def __init__(self, error: Exception) -> None:
        super().__init__(":memory:")
        self._error = error

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout:
        raise self._error


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_an_unexpected_error_is_told_by_a_reference_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FailingStore(RuntimeError("password=hunter2")) as store, served(store) as client:
        answer = await client.get("/v1/rollouts/a")

    assert refusal(answer) == (500, "failed")
    message: str = answer.json()["error"]["message"]
    assert "hunter2" not in message
    assert "Traceback" not in message
    reference = message.rsplit(" ", 1)[1]
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert reference in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("error", "refused"),
    [(StoreUnavailableError("closed"), (503, "unavailable")), (StoreError("disk full"), (500, "failed"))],
)
async def test_a_stores_error_keeps_its_message(error: StoreError, refused: tuple[int, str]) -> None:
    async with FailingStore(error) as store, served(store) as client:
        answer = await client.get("/v1/rollouts/a")
    assert refusal(answer) == refused
    assert answer.json()["error"]["message"] == str(error)


async def test_a_client_of_another_store_is_refused(client: httpx.AsyncClient, store: SqliteStore) -> None:
    identity = (await store.health())["identity"]
    assert (await client.get("/v1/rollouts", headers={wire.IDENTITY_HEADER: identity})).status_code == 200

    other = await client.post("/v1/rollouts", json={"task": 1}, headers={wire.IDENTITY_HEADER: "another"})

    assert refusal(other) == (409, "store_changed")
    assert (await store.query_rollouts()).items == []


async def test_a_token_is_asked_for_before_anything_is_read(store: SqliteStore) -> None:
    async with served(store, token="admin") as client:
        for path in ("/v1/rollouts", "/metrics", "/v1/backup", "/v1/statistics"):
            answer = await client.get(path)
            assert refusal(answer) == (401, "unauthorized"), path
            assert answer.headers["www-authenticate"] == "Bearer"
        assert refusal(await client.post("/v1/rollouts", content=b"{", headers=JSON)) == (401, "unauthorized")
        assert (await client.get("/v1/health")).status_code == 200
        admitted = await client.get("/v1/rollouts", headers={"authorization": "Bearer admin"})
        assert admitted.status_code == 200


async def test_a_read_only_server_changes_nothing(store: SqliteStore) -> None:
    await store.enqueue_rollout(RolloutRequest(task=1, rollout_id="a"))
    before = await store.statistics()
    writes = [
        *(("POST", path) for path in ("/v1/rollouts", "/v1/rollouts/dequeue", "/v1/rollouts/dequeue/undo")),
        *(("POST", path) for path in ("/v1/rollouts/a/cancel", "/v1/rollouts/a/attempts", "/v1/spans")),
        *(("POST", path) for path in ("/v1/spans/sequence", "/v1/traces", "/v1/resources", "/v1/workers")),
        *(("POST", path) for path in ("/v1/workers/w/heartbeat", "/v1/runs", "/v1/runs/r/metrics")),
        *(("PATCH", path) for path in ("/v1/rollouts/a", "/v1/rollouts/a/attempts/b", "/v1/runs/r")),
        *(("DELETE", path) for path in ("/v1/runs/r", "/v1/spans")),
        ("GET", "/v1/rollouts/dequeue"),
    ]
    async with served(store, read_only=True) as client:
        for method, path in writes:
            assert (await client.request(method, path)).status_code == 403, (method, path)
        assert (await client.get("/v1/rollouts/a")).json()["rollout_id"] == "a"
        found = await client.post("/v1/rollouts/query", json={"rollout_ids": ["a"]})
        waited = await client.post("/v1/rollouts/wait", json={"rollout_ids": ["a"]})
        assert (len(found.json()["items"]), waited.json()) == (1, {"items": []})
    assert await store.statistics() == before


async def test_a_page_has_a_longest_length(store: SqliteStore) -> None:
    async with served(store, max_page=10) as client:
        assert (await client.get("/v1/rollouts?limit=10")).status_code == 200
        assert refusal(await client.get("/v1/rollouts?limit=11")) == (422, "invalid")
        assert refusal(await client.post("/v1/rollouts/query", json={"limit": 11})) == (422, "invalid")
        assert refusal(await client.get("/v1/rollouts/a/attempts?limit=11")) == (422, "invalid")


async def test_a_body_has_a_largest_size_packed_and_unpacked(store: SqliteStore) -> None:
    async with served(store, max_body_bytes=1000) as client:
        fits = await client.post("/v1/rollouts", json={"task": "x" * 900})
        large = await client.post("/v1/rollouts", json={"task": "x" * 1000})
        bomb = gzip.compress(orjson.dumps({"task": "x" * 100_000}))
        packed = await client.post("/v1/rollouts", content=bomb, headers=JSON | {"content-encoding": "gzip"})
    assert fits.status_code == 200
    assert refusal(large) == refusal(packed) == (413, "too_large")


async def test_a_gzip_body_is_read_and_a_long_answer_is_packed(client: httpx.AsyncClient) -> None:
    requests = [{"task": "x" * 100, "rollout_id": f"r{number}"} for number in range(200)]
    stored = await client.post(
        "/v1/rollouts",
        content=gzip.compress(orjson.dumps(requests)),
        headers=JSON | {"content-encoding": "gzip"},
    )

    assert [rollout["rollout_id"] for rollout in stored.json()] == [f"r{number}" for number in range(200)]
    assert stored.headers["content-encoding"] == "gzip"
    plain = await client.get("/v1/rollouts", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json()["items"] == stored.json()


async def test_unknown_paths_and_verbs_are_told_in_the_same_shape(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/v1/rollouts/", "/v1/rollouts/a%2Fb", "/v1/rollouts/a/b"):
        assert refusal(await client.get(path)) == (404, "not_found"), path
    wrong = await client.request("PUT", "/v1/rollouts")
    assert refusal(wrong) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, POST"


async def test_an_operation_without_parameters_takes_none(client: httpx.AsyncClient) -> None:
    assert refusal(await client.get("/v1/health?x=1")) == (422, "invalid")


async def test_an_answer_too_many_for_memory_is_refused() -> None:
    class LargeStore(SqliteStore):
        async def query_rollouts(self, query: RolloutQuery | None = None) -> Page[Rollout]:
            return Page(items=[Rollout(rollout_id="a", task="x" * 500_000, created_at=1.0)])

    async with LargeStore(":memory:") as store, served(store, max_body_bytes=20_000) as client:
        answer = await client.get("/v1/rollouts", headers={"accept-encoding": "identity"})
        assert refusal(answer) == (429, "too_many_requests")
        assert (await client.get("/v1/health")).status_code == 200


async def test_the_document_and_its_page_are_served(client: httpx.AsyncClient) -> None:
    assert "/v1/rollouts" in (await client.get("/openapi.json")).json()["paths"]
    assert "openapi.json" in (await client.get("/docs")).text


async def test_the_application_serves_below_a_prefix(store: SqliteStore) -> None:
    app = create_app(store)
    transport = httpx.ASGITransport(app, root_path="/store")
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/store/v1/health")).json()["status"] == "ok"


@pytest.mark.parametrize("token", ["", "two words"])
def test_a_token_that_cannot_travel_is_a_wrong_setting(token: str) -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match=r"token: ASCII"):
        create_app(nothing, token=token)
