from __future__ import annotations

import httpx
from served_stores import START, served

from agl.store.sqlite import SqliteStore
from agl.types import PromptTemplate, ProxyLLM, RolloutRequest
from agl.types.tokens import scoped_token


async def test_resources_are_numbered_and_found(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/resources/latest")).json() is None
    prompt = {"kind": "prompt_template", "template": "{x}", "engine": "f-string"}

    first = (await client.post("/v1/resources", json={"resources": {"p": prompt, "any": [1]}})).json()
    second = (await client.post("/v1/resources", json={"resources": {}, "run_id": "r"})).json()

    assert (first["version"], second["version"]) == (1, 2)
    assert first["resources"] == {"p": {**prompt, "version": 1, "parent": None}, "any": [1]}
    assert (await client.get(f"/v1/resources/{first['resources_id']}")).json() == first
    assert (await client.get("/v1/resources/latest")).json() == second
    assert (await client.get("/v1/resources?run_id=r")).json()["items"] == [second]
    assert (await client.get("/v1/resources/unknown")).status_code == 404


async def test_a_worker_lives_by_its_heartbeats(client: httpx.AsyncClient, store: SqliteStore) -> None:
    worker = await client.post("/v1/workers", json={"worker_id": "w", "host": "h", "pid": 7})
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="a"), worker_id="w")

    beat = await client.post(
        "/v1/workers/w/heartbeat",
        json={"attempts": [held.attempt.attempt_id, "at-gone"], "stats": {"cpu": 1}},
    )

    assert worker.json()["registered_at"] == START
    assert beat.json() == {"lost": ["at-gone"]}
    assert (await client.post("/v1/workers/w/heartbeat")).json() == {"lost": []}
    assert (await client.post("/v1/workers/unknown/heartbeat")).status_code == 404
    listed = (await client.get("/v1/workers")).json()["items"]
    assert [(item["worker_id"], item["stats"]) for item in listed] == [("w", {"cpu": 1})]
    active = await client.get("/v1/workers?active_within_seconds=5")
    assert [item["worker_id"] for item in active.json()["items"]] == ["w"]


async def test_runs_and_their_metrics(client: httpx.AsyncClient) -> None:
    made = await client.post("/v1/runs", json={"name": "n", "run_id": "r", "settings": {"a": 1}})
    stored = await client.post("/v1/runs/r/metrics", json={"step": 3, "values": {"loss": 0.5, "kl": 2}})

    assert (made.json()["status"], stored.status_code, stored.json()) == ("running", 200, None)
    points = (await client.get("/v1/runs/r/metrics?names=loss&min_step=1")).json()["items"]
    assert [(point["name"], point["step"], point["value"]) for point in points] == [("loss", 3, 0.5)]
    assert (await client.delete("/v1/runs/r")).status_code == 409
    assert (await client.patch("/v1/runs/r", json={"status": "succeeded"})).json()["status"] == "succeeded"
    assert [run["run_id"] for run in (await client.get("/v1/runs?status=succeeded")).json()["items"]] == ["r"]
    gone = await client.delete("/v1/runs/r")
    assert gone.json()["metrics"] == 2
    assert (await client.delete("/v1/runs/r")).status_code == 404


async def test_a_metric_that_is_no_number_is_refused(client: httpx.AsyncClient) -> None:
    await client.post("/v1/runs", json={"name": "n", "run_id": "r"})
    for body, status in (
        (b'{"step": 1, "values": {"x": NaN}}', 400),
        (b'{"step": 1, "values": {"x": null}}', 422),
        (b'{"step": 1, "values": {"x": "1"}}', 422),
    ):
        answer = await client.post(
            "/v1/runs/r/metrics", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == status, body


async def test_a_scoped_token_reads_the_resources_of_its_rollout_alone(store: SqliteStore) -> None:
    await store.add_resources({"p": PromptTemplate(template="old")}, resources_id="old")
    await store.add_resources({"p": PromptTemplate(template="own")}, resources_id="own")
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="a", resources_id="own"))
    async with served(store, token="admin") as client:
        client.headers["authorization"] = f"Bearer {scoped_token('admin', 'a', held.attempt.attempt_id)}"

        assert (await client.get("/v1/resources/own")).json()["resources"]["p"]["template"] == "own"
        for path in ("/v1/resources/old", "/v1/resources/latest", "/v1/resources", "/v1/workers", "/v1/runs"):
            assert (await client.get(path)).status_code == 403, path


async def test_a_scoped_token_reads_its_own_key_and_never_the_proxys_secret(store: SqliteStore) -> None:
    llm = ProxyLLM(base_url="http://127.0.0.1:1", model="policy", api_key="pr0xy-secret")
    await store.add_resources({"llm": llm}, resources_id="own")
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="a", resources_id="own"))
    attempt_id = held.attempt.attempt_id
    async with served(store, token="admin") as client:
        client.headers["authorization"] = f"Bearer {scoped_token('admin', 'a', attempt_id)}"
        answer = await client.get("/v1/resources/own")
    assert "pr0xy-secret" not in answer.text
    narrowed = ProxyLLM.model_validate(answer.json()["resources"]["llm"])
    assert narrowed.for_attempt("a", attempt_id) == llm.for_attempt("a", attempt_id)
