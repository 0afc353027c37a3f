from __future__ import annotations

from pathlib import Path

import httpx
from recorded_runs import rollout, span
from served_stores import served

from agl.store.base import LightningStore
from agl.store.mongo import MongoStore
from agl.store.server.status import Health
from agl.store.sqlite import SqliteStore
from agl.types import RolloutRequest, SpanQuery
from agl.types.tokens import scope_of


class CopiedStore(SqliteStore):
    """A store whose copy is some bytes."""

    def __init__(self, content: bytes | Exception) -> None:
        super().__init__(":memory:")
        self._content = content
        self.paths: list[Path] = []

    async def backup(self, path: str) -> None:
        self.paths.append(Path(path))
        if isinstance(self._content, Exception):
            raise self._content
        Path(path).write_bytes(self._content)


async def test_the_health_names_the_store(client: httpx.AsyncClient, store: SqliteStore) -> None:
    answer = (await client.get("/v1/health")).json()
    assert answer == await store.health()
    assert Health.model_validate(answer).status == "ok"


async def test_the_counts_of_all_or_one_run(client: httpx.AsyncClient, store: SqliteStore) -> None:
    await store.enqueue_many_rollouts([RolloutRequest(task=1, run_id="r"), RolloutRequest(task=2)])

    assert (await client.get("/v1/statistics")).json()["rollouts"]["pending"] == 2
    assert (await client.get("/v1/statistics?run_id=r")).json()["rollouts"]["pending"] == 1


async def test_metrics_count_requests_and_records(client: httpx.AsyncClient, store: SqliteStore) -> None:
    await client.post("/v1/rollouts", json={"task": 1})
    await client.get("/v1/rollouts/unknown")

    answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'agl_store_rollouts{status="pending"} 1.0' in lines
    name = "agl_store_request_seconds_count"
    assert f'{name}{{method="POST",route="/v1/rollouts",status="200"}} 1.0' in lines
    assert f'{name}{{method="GET",route="/v1/rollouts/{{rollout_id}}",status="404"}} 1.0' in lines


async def test_an_admin_makes_scoped_tokens_of_known_attempts(store: SqliteStore) -> None:
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="a"))
    async with served(store, token="admin") as client:
        client.headers["authorization"] = "Bearer admin"
        key = {"rollout_id": "a", "attempt_id": held.attempt.attempt_id}

        made = await client.post("/v1/tokens", json=key)

        assert scope_of("admin", made.json()["token"]) == ("a", held.attempt.attempt_id)
        assert (await client.post("/v1/tokens", json=key | {"attempt_id": "at-x"})).status_code == 404
        assert (await client.post("/v1/tokens", json=key | {"rollout_id": "x"})).status_code == 404


async def test_a_server_without_a_token_makes_none(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/tokens", json={"rollout_id": "a", "attempt_id": "b"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


async def test_a_backup_is_a_file_that_leaves_nothing_behind() -> None:
    content = bytes(range(256)) * 3000  # three chunks
    async with CopiedStore(content) as store, served(store) as client:
        answer = await client.get("/v1/backup")

        assert answer.content == content
        assert answer.headers["content-type"] == "application/vnd.sqlite3"
        assert answer.headers["content-length"] == str(len(content))
        assert [path.parent.exists() for path in store.paths] == [False]


async def test_a_backup_that_fails_leaves_nothing_behind() -> None:
    async with CopiedStore(RuntimeError("disk full at /secret")) as store, served(store) as client:
        answer = await client.get("/v1/backup")

        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "failed")
        assert "secret" not in answer.text
        assert [path.parent.exists() for path in store.paths] == [False]


async def test_a_store_without_a_file_has_no_backup() -> None:
    class Remote:
        """Hides everything but the contract."""

        def __init__(self, store: LightningStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            if name == "backup":
                raise AttributeError(name)
            return getattr(self._store, name)

    async with SqliteStore(":memory:") as store:
        remote: LightningStore = Remote(store)  # type: ignore[assignment]
        async with served(remote) as client:
            answer = await client.get("/v1/backup")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_records_of_another_store_come_in_as_they_are(
    client: httpx.AsyncClient, store: SqliteStore
) -> None:
    record, one = rollout(1), span(1, 1)
    body = {"rollouts": [record.model_dump(mode="json")], "spans": [one.model_dump(mode="json")]}
    for new in (1, 0):
        answer = await client.post("/v1/restore", json=body)
        assert answer.json() == {"runs": 0, "rollouts": new, "attempts": new, "spans": new}
    assert (await store.query_spans(SpanQuery(rollout_id="ro-1"))).items == [one]
    assert (await store.get_latest_attempt("ro-1")) == record.attempts[0]
    body = {"spans": [one.model_dump(mode="json") | {"attempt_id": "at-9", "span_id": "other"}]}
    assert (await client.post("/v1/restore", json=body)).status_code == 404
    assert (await client.post("/v1/restore", json={"rollouts": [{"rollout_id": "x"}]})).status_code == 422


async def test_a_store_that_takes_in_nothing_and_a_read_only_server_say_so(store: SqliteStore) -> None:
    async with served(store, read_only=True) as client:
        assert (await client.post("/v1/restore", json={})).status_code == 403
    async with served(MongoStore("mongodb://127.0.0.1:1")) as client:
        answer = await client.post("/v1/restore", json={})
    assert answer.status_code == 404
    assert "takes in no records of others" in answer.json()["error"]["message"]
