from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agl.store.server import create_app
from agl.store.sqlite import SqliteStore

PATHS = {
    "/metrics": {"get"},
    "/v1/attempts": {"get"},
    "/v1/backup": {"get"},
    "/v1/health": {"get"},
    "/v1/resources": {"get", "post"},
    "/v1/resources/latest": {"get"},
    "/v1/resources/{resources_id}": {"get"},
    "/v1/restore": {"post"},
    "/v1/rollouts": {"get", "post"},
    "/v1/rollouts/dequeue": {"get", "post"},
    "/v1/rollouts/dequeue/undo": {"post"},
    "/v1/rollouts/query": {"post"},
    "/v1/rollouts/wait": {"post"},
    "/v1/rollouts/{rollout_id}": {"get", "patch"},
    "/v1/rollouts/{rollout_id}/attempts": {"get", "post"},
    "/v1/rollouts/{rollout_id}/attempts/latest": {"get"},
    "/v1/rollouts/{rollout_id}/attempts/{attempt_id}": {"patch"},
    "/v1/rollouts/{rollout_id}/cancel": {"post"},
    "/v1/runs": {"get", "post"},
    "/v1/runs/{run_id}": {"patch", "delete"},
    "/v1/runs/{run_id}/metrics": {"get", "post"},
    "/v1/spans": {"get", "post", "delete"},
    "/v1/spans/sequence": {"post"},
    "/v1/statistics": {"get"},
    "/v1/tokens": {"post"},
    "/v1/traces": {"post"},
    "/v1/workers": {"get", "post"},
    "/v1/workers/{worker_id}/heartbeat": {"post"},
}


@pytest.fixture
def document() -> dict[str, Any]:
    return create_app(SqliteStore(":memory:")).openapi()


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()


def references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_every_path_is_documented(document: dict[str, Any]) -> None:
    assert {path: set(methods) for path, methods in document["paths"].items()} == PATHS


def test_every_operation_has_a_name_a_summary_and_its_errors(document: dict[str, Any]) -> None:
    found = list(operations(document))
    assert len({operation["operationId"] for operation in found}) == len(found)
    for operation in found:
        assert operation["summary"]
        assert {"200", "400", "401", "403", "409", "422", "429", "500", "503"} <= set(operation["responses"])
        if "requestBody" in operation:
            assert {"408", "413", "415"} <= set(operation["responses"])


def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas, reference


def test_a_path_parameter_is_an_id(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v1/rollouts/{rollout_id}/attempts/{attempt_id}"]["patch"]["parameters"]
    assert [parameter["name"] for parameter in parameters] == ["rollout_id", "attempt_id"]
    assert all(parameter["required"] and parameter["schema"]["maxLength"] == 200 for parameter in parameters)


def test_a_parameter_is_left_out_instead_of_null(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v1/rollouts"]["get"]["parameters"]
    schemas = {parameter["name"]: parameter.get("schema") for parameter in parameters}
    assert schemas["run_id"] == {"type": "string"}
    assert schemas["status"]["type"] == "array"
    assert (schemas["limit"]["minimum"], schemas["limit"]["maximum"]) == (1, 10_000)


def test_an_integer_has_64_bits(document: dict[str, Any]) -> None:
    priority = document["components"]["schemas"]["Rollout"]["properties"]["priority"]
    assert (priority["format"], priority["minimum"], priority["maximum"]) == (
        "int64",
        -9223372036854775808,
        9223372036854775807,
    )


def test_one_or_many_are_told(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/spans"]["post"]["requestBody"]
    one, many = body["content"]["application/json"]["schema"]["anyOf"]
    assert many == {"type": "array", "items": one, "maxItems": 10_000}
