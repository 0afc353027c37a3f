"""OpenTelemetry exporters of other processes deliver into ``agl store`` unmodified."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from store_processes import StoreProcess, served

TOKEN = "a-token-of-some-length"
PROGRAM = Path(__file__).parents[1] / "support" / "otlp_process.py"
RECORDED = Path(__file__).parents[1] / "data" / "otlp_javascript.json"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    environment = {"AGL_STORE_TOKEN": TOKEN}
    with served(folder=tmp_path_factory.mktemp("store"), environment=environment) as started:
        yield started


def asked(store: StoreProcess, verb: str, path: str, **given: Any) -> Any:
    answer = httpx.request(verb, f"{store.url}{path}", headers={"authorization": f"Bearer {TOKEN}"}, **given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def started_attempt(store: StoreProcess) -> tuple[str, str]:
    held = asked(store, "POST", "/v1/rollouts", params={"start": "true"}, json={"task": 0})
    return held["rollout_id"], held["attempt"]["attempt_id"]


def exported(
    store: StoreProcess, num_children: int, *, token: str = TOKEN, **environment: str
) -> tuple[str, str]:
    """Run the program to its end; return its trace's id and what it complained about."""
    headers = f"authorization=Bearer%20{token}"
    more = environment.pop("OTEL_EXPORTER_OTLP_HEADERS", "")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(num_children)],
        env={
            **clean,
            "OTEL_EXPORTER_OTLP_ENDPOINT": store.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"{headers},{more}" if more else headers,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "20",
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip(), done.stderr


def spans_of(store: StoreProcess, **query: Any) -> list[dict[str, Any]]:
    return asked(store, "GET", "/v1/spans", params=query)["items"]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_an_unmodified_exporter_delivers_to_the_attempt_of_its_resource(
    store: StoreProcess, compression: str
) -> None:
    rollout, attempt = started_attempt(store)
    trace, complaints = exported(
        store,
        3,
        OTEL_EXPORTER_OTLP_COMPRESSION=compression,
        OTEL_RESOURCE_ATTRIBUTES=f"agl.rollout_id={rollout},agl.attempt_id={attempt},deployment=a%20b",
        OTEL_SERVICE_NAME="agent",
    )
    assert complaints == ""
    found = spans_of(store, rollout_id=rollout, attempt_id=attempt)
    assert [span["name"] for span in found] == ["child 0", "child 1", "child 2", "root"]
    assert [span["sequence_id"] for span in found] == [1, 2, 3, 4]
    child, root = found[1], found[3]
    assert {span["trace_id"] for span in found} == {trace}
    assert (root["kind"], root["parent_id"], root["status"]["code"]) == ("server", None, "unset")
    assert (child["kind"], child["parent_id"]) == ("internal", root["span_id"])
    assert child["status"] == {"code": "error", "description": "on purpose"}
    assert child["attributes"] == {
        "otel.scope.name": "somebody.else",
        "otel.scope.version": "3.2",
        "number": 1,
        "big": 9223372036854775807,
        "parts": [0.5, 1.5],
    }
    (event,), (link,) = child["events"], child["links"]
    assert (event["name"], event["attributes"]) == ("seen", {"at": 1})
    assert child["start_time_ns"] <= event["time_ns"] <= child["end_time_ns"]
    assert link == {"trace_id": trace, "span_id": root["span_id"], "attributes": {"why": "root"}}
    assert child["resource"]["service.name"] == "agent"
    assert child["resource"]["deployment"] == "a b"
    assert "agl.rollout_id" not in child["resource"]
    assert asked(store, "GET", f"/v1/rollouts/{rollout}")["status"] == "running"  # spans are signs of life


def test_headers_of_the_environment_name_the_attempt(store: StoreProcess) -> None:
    rollout, attempt = started_attempt(store)
    _, complaints = exported(
        store,
        1,
        OTEL_EXPORTER_OTLP_HEADERS=f"x-agl-rollout-id={rollout},x-agl-attempt-id={attempt}",
    )
    assert complaints == ""
    assert len(spans_of(store, rollout_id=rollout, attempt_id=attempt)) == 2


def test_the_resource_attributes_of_agent_lightning_name_the_attempt(store: StoreProcess) -> None:
    rollout, attempt = started_attempt(store)
    resource = f"agentlightning.rollout_id={rollout},agentlightning.attempt_id={attempt}"
    exported(store, 1, OTEL_RESOURCE_ATTRIBUTES=resource)
    assert len(spans_of(store, rollout_id=rollout, attempt_id=attempt)) == 2


def test_a_scoped_token_alone_names_the_attempt(store: StoreProcess) -> None:
    rollout, attempt = started_attempt(store)
    token = asked(store, "POST", "/v1/tokens", json={"rollout_id": rollout, "attempt_id": attempt})["token"]
    _, complaints = exported(store, 2, token=token)
    assert complaints == ""
    assert len(spans_of(store, rollout_id=rollout, attempt_id=attempt)) == 3


def test_spans_without_a_rollout_are_kept_under_their_trace(store: StoreProcess) -> None:
    trace, complaints = exported(store, 1)
    assert complaints == ""
    found = spans_of(store, trace_id=trace)
    assert sorted(span["name"] for span in found) == ["child 0", "root"]
    assert {(span["rollout_id"], span["sequence_id"]) for span in found} == {(None, None)}


def test_many_spans_come_in_many_batches(store: StoreProcess) -> None:
    rollout, attempt = started_attempt(store)
    resource = f"agl.rollout_id={rollout},agl.attempt_id={attempt}"
    exported(store, 2000, OTEL_RESOURCE_ATTRIBUTES=resource, OTEL_BSP_MAX_QUEUE_SIZE="4096")
    found = spans_of(store, rollout_id=rollout, limit=10_000)
    assert sorted(span["sequence_id"] for span in found) == list(range(1, 2002))
    assert {span["name"] for span in found} == {"root", *(f"child {number}" for number in range(2000))}


def test_an_exporter_with_a_wrong_token_stores_nothing(store: StoreProcess) -> None:
    trace, complaints = exported(store, 1, token="wrong")
    assert "401" in complaints
    assert spans_of(store, trace_id=trace) == []


def test_a_chunked_request_of_the_javascript_exporter_is_taken(store: StoreProcess) -> None:
    asked(store, "POST", "/v1/rollouts", json={"task": 0, "rollout_id": "ro-js"})
    body = RECORDED.read_bytes()

    def chunks() -> Iterator[bytes]:
        yield body[:1000]
        yield body[1000:]

    for _ in range(2):
        answer = httpx.post(
            f"{store.url}/v1/traces",
            content=chunks(),
            headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
        )
        assert (answer.status_code, answer.text) == (200, "{}")
    assert [span["name"] for span in spans_of(store, rollout_id="ro-js")] == ["chat gpt", "plan"]
