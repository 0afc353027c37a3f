from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import httpx
import pytest
from served_stores import served

from agl.store.sqlite import SqliteStore
from agl.types import AttemptQuery, Rollout, RolloutRequest


async def test_enqueueing_one_answers_one_and_a_list_a_list(client: httpx.AsyncClient) -> None:
    one = await client.post("/v1/rollouts", json={"task": {"q": 1}, "rollout_id": "a", "priority": 3})
    many = await client.post("/v1/rollouts", json=[{"task": 2, "rollout_id": "b"}, {"task": 3}])

    assert one.status_code == many.status_code == 200
    assert Rollout.model_validate(one.json()).priority == 3
    assert [rollout["task"] for rollout in many.json()] == [2, 3]
    assert (await client.post("/v1/rollouts", json=[])).json() == []


async def test_a_known_id_answers_the_first_rollout(client: httpx.AsyncClient) -> None:
    first = await client.post("/v1/rollouts", json={"task": 1, "rollout_id": "a"})
    again = await client.post("/v1/rollouts", json={"task": 2, "rollout_id": "a"})
    assert again.json() == first.json()


async def test_a_dequeue_answers_the_rollout_with_its_attempt_or_null(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json={"task": 1, "rollout_id": "a"})

    claimed = (await client.post("/v1/rollouts/dequeue", json={"worker_id": "w"})).json()

    assert (claimed["rollout_id"], claimed["status"]) == ("a", "preparing")
    assert (claimed["attempt"]["rollout_id"], claimed["attempt"]["worker_id"]) == ("a", "w")
    assert (await client.post("/v1/rollouts/dequeue", json={"worker_id": "w"})).json() is None


async def test_a_dequeue_with_a_limit_answers_a_list_also_by_get(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json=[{"task": n, "rollout_id": f"r{n}"} for n in range(3)])

    got = await client.get("/v1/rollouts/dequeue", params={"worker_id": "w", "limit": 2})

    assert [rollout["rollout_id"] for rollout in got.json()] == ["r0", "r1"]
    one = await client.get("/v1/rollouts/dequeue?worker_id=w")
    assert one.json()["rollout_id"] == "r2"
    rest = await client.post("/v1/rollouts/dequeue", json={"worker_id": "w", "limit": 5})
    assert rest.json() == []


async def test_a_dequeue_can_be_repeated_and_undone(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json={"task": 1, "rollout_id": "a"})
    wanted = {"worker_id": "w", "request_id": "q"}
    first = (await client.post("/v1/rollouts/dequeue", json=wanted)).json()

    assert (await client.post("/v1/rollouts/dequeue", json=wanted)).json() == first
    assert (await client.post("/v1/rollouts/dequeue/undo", json=wanted)).json() == {"rollout_ids": ["a"]}
    assert (await client.get("/v1/rollouts/a")).json()["status"] == "pending"


async def test_a_waiting_dequeue_is_woken_by_an_enqueue(client: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(
        client.post("/v1/rollouts/dequeue", json={"worker_id": "w", "wait_seconds": 30})
    )
    await asyncio.sleep(0)
    await client.post("/v1/rollouts", json={"task": 1, "rollout_id": "a"})

    assert (await waiting).json()["rollout_id"] == "a"


async def test_a_wait_answers_what_is_terminal(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json=[{"task": 1, "rollout_id": "a"}, {"task": 2, "rollout_id": "b"}])
    await client.post("/v1/rollouts/a/cancel")

    now = await client.post("/v1/rollouts/wait", json={"rollout_ids": ["b", "a"]})
    waiting = asyncio.create_task(
        client.post("/v1/rollouts/wait", json={"rollout_ids": ["b", "a"], "timeout_seconds": 30})
    )
    await asyncio.sleep(0)
    await client.post("/v1/rollouts/b/cancel")

    assert [rollout["rollout_id"] for rollout in now.json()["items"]] == ["a"]
    assert [rollout["rollout_id"] for rollout in (await waiting).json()["items"]] == ["b", "a"]


async def test_starting_makes_rollout_and_attempt_at_once(client: httpx.AsyncClient) -> None:
    started = await client.post(
        "/v1/rollouts?start=true&worker_id=w",
        json={"task": 1, "rollout_id": "a", "config": {"max_attempts": 2}},
    )

    assert started.json()["attempt"]["worker_id"] == "w"
    again = await client.post("/v1/rollouts?start=true", json={"task": 1, "rollout_id": "a"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")
    many = await client.post("/v1/rollouts?start=true", json=[{"task": 1}])
    assert many.status_code == 422
    stray = await client.post("/v1/rollouts?worker_id=w", json={"task": 1})
    assert "start=true" in stray.json()["error"]["message"]


async def test_an_attempts_report_decides_its_rollout(client: httpx.AsyncClient) -> None:
    held = (await client.post("/v1/rollouts?start=true", json={"task": 1, "rollout_id": "a"})).json()
    path = f"/v1/rollouts/a/attempts/{held['attempt']['attempt_id']}"

    done = await client.patch(
        path, json={"status": "succeeded", "reward": 0.5, "reward_dimensions": {"x": 1}}
    )

    assert (done.json()["status"], done.json()["reward"], done.json()["attempt"]["status"]) == (
        "succeeded",
        0.5,
        "succeeded",
    )
    late = await client.patch(path, json={"status": "failed"})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "conflict")


async def test_attempts_are_opened_and_listed(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json={"task": 1, "rollout_id": "a"})
    assert (await client.get("/v1/rollouts/a/attempts/latest")).json() is None

    started = (await client.post("/v1/rollouts/a/attempts", json={"worker_id": "w"})).json()

    attempt = started["attempt"]
    assert (await client.get("/v1/rollouts/a/attempts/latest")).json() == attempt
    assert (await client.get("/v1/rollouts/a/attempts")).json() == {"items": [attempt], "next_cursor": None}
    assert (await client.get("/v1/attempts?worker_id=w")).json()["items"] == [attempt]
    assert (await client.get("/v1/rollouts/a/attempts?status=failed")).json()["items"] == []
    refused = await client.post("/v1/rollouts/a/attempts")
    assert refused.status_code == 409


async def test_a_rollout_is_changed_where_something_is_given(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json={"task": 1, "rollout_id": "a", "priority": 4})

    changed = await client.patch("/v1/rollouts/a", json={"metadata": {"k": "v"}, "status": None})

    assert (changed.json()["metadata"], changed.json()["priority"], changed.json()["status"]) == (
        {"k": "v"},
        4,
        "pending",
    )


async def test_lists_are_filtered_and_paged(client: httpx.AsyncClient) -> None:
    await client.post("/v1/rollouts", json=[{"task": n, "rollout_id": f"r{n}"} for n in range(5)])

    first = (await client.get("/v1/rollouts", params={"limit": 2, "order": "desc"})).json()
    second = (
        await client.get("/v1/rollouts", params={"limit": 2, "order": "desc", "cursor": first["next_cursor"]})
    ).json()
    chosen = await client.post(
        "/v1/rollouts/query", json={"rollout_ids": ["r3", "r0"], "status": ["pending"]}
    )

    ids = [item["rollout_id"] for page in (first, second) for item in page["items"]]
    assert ids == ["r4", "r3", "r2", "r1"]
    assert [item["rollout_id"] for item in chosen.json()["items"]] == ["r0", "r3"]


async def test_unknown_rollouts_are_not_found(client: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", "/v1/rollouts/x"),
        ("POST", "/v1/rollouts/x/cancel"),
        ("GET", "/v1/rollouts/x/attempts/latest"),
        ("POST", "/v1/rollouts/x/attempts"),
    ):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path


class WaitRecorder(SqliteStore):
    """Notes how long it is asked to wait."""

    async def wait_for_rollouts(
        self,
        rollout_ids: Sequence[str],
        *,
        timeout_seconds: float | None = None,
        at_least: int | None = None,
    ) -> list[Rollout]:
        self.asked: Mapping[str, object] = {
            "ids": list(rollout_ids),
            "seconds": timeout_seconds,
            "at_least": at_least,
        }
        return []


@pytest.mark.parametrize("seconds", [0.0, 12.5])
async def test_a_wait_lasts_as_long_as_asked(seconds: float) -> None:
    async with WaitRecorder(":memory:") as store, served(store) as client:
        wait = {"rollout_ids": ["a"], "timeout_seconds": seconds, "at_least": 1 if seconds else None}
        await client.post("/v1/rollouts/wait", json=wait)
        assert store.asked == {"ids": ["a"], "seconds": seconds, "at_least": wait["at_least"]}
        too_long = await client.post("/v1/rollouts/wait", json={"rollout_ids": ["a"], "timeout_seconds": 31})
        assert too_long.status_code == 422


async def test_an_attempt_of_a_scoped_token_is_all_it_may_touch(store: SqliteStore) -> None:
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="a"), worker_id="w")
    await store.enqueue_rollout(RolloutRequest(task=2, rollout_id="b"))
    attempt_id = held.attempt.attempt_id
    async with served(store, token="admin") as client:
        admin = {"authorization": "Bearer admin"}
        made = await client.post(
            "/v1/tokens", json={"rollout_id": "a", "attempt_id": attempt_id}, headers=admin
        )
        client.headers["authorization"] = f"Bearer {made.json()['token']}"

        for path in ("/v1/rollouts/a", "/v1/rollouts/a/attempts", "/v1/rollouts/a/attempts/latest"):
            assert (await client.get(path)).status_code == 200, path
        for method, path in (
            ("GET", "/v1/rollouts/b"),
            ("GET", "/v1/rollouts/b/attempts"),
            ("GET", "/v1/rollouts"),
            ("GET", "/v1/attempts"),
            ("POST", "/v1/rollouts"),
            ("POST", "/v1/rollouts/dequeue"),
            ("POST", "/v1/rollouts/a/cancel"),
            ("PATCH", "/v1/rollouts/a"),
            ("POST", "/v1/tokens"),
            ("GET", "/v1/backup"),
            ("POST", "/v1/restore"),
            ("GET", "/metrics"),
            ("GET", "/v1/statistics"),
            ("DELETE", "/v1/spans"),
        ):
            assert (await client.request(method, path)).status_code == 403, (method, path)
        other = await client.patch("/v1/rollouts/a/attempts/at-other", json={"status": "failed"})
        assert other.status_code == 403
        assert (await store.query_attempts(AttemptQuery(rollout_id="a"))).items[0].status == "preparing"
        done = await client.patch(f"/v1/rollouts/a/attempts/{attempt_id}", json={"status": "succeeded"})
        assert done.json()["status"] == "succeeded"
