"""The OpenAPI document of ``agl store`` is true: whatever it allows or forbids, no answer is a 500 or undocumented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from store_processes import served

from agl.store.server import create_app
from agl.store.sqlite import SqliteStore

TOKEN = "a-token-of-some-length"
AUTHORIZATION = {"authorization": f"Bearer {TOKEN}"}
EXAMPLES = 12
"""Of each operation and kind. It is about 45 operations, two kinds and 10 ms."""
LONGEST_WAIT_SECONDS = 0.01
SCHEMA = schemathesis.openapi.from_dict(create_app(SqliteStore(":memory:"), token=TOKEN).openapi())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
CHECKED = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
]


class ServedStore:
    """A store that serves, with one record of each kind."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        held = self._made("/v1/rollouts?start=true", {"task": 0, "run_id": "r"})
        self.ids = {
            "rollout_id": held["rollout_id"],
            "attempt_id": held["attempt"]["attempt_id"],
            "run_id": self._made("/v1/runs", {"name": "n"})["run_id"],
            "worker_id": self._made("/v1/workers", {"worker_id": "w"})["worker_id"],
            "resources_id": self._made("/v1/resources", {"resources": {}})["resources_id"],
        }

    def _made(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(f"{self.url}{path}", json=body, headers=AUTHORIZATION)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStore]:
    folder: Path = tmp_path_factory.mktemp("store")
    with served(folder=folder, environment={"AGL_STORE_TOKEN": TOKEN}) as process:
        yield ServedStore(process.url)


def test_the_document_is_served(store: ServedStore) -> None:
    assert httpx.get(f"{store.url}/openapi.json").json() == SCHEMA.raw_schema


@pytest.mark.parametrize("label", OPERATIONS)
def test_what_the_document_allows_is_answered_as_it_says(store: ServedStore, label: str) -> None:
    _try(store, label, schemathesis.GenerationMode.POSITIVE)


@pytest.mark.parametrize(
    "label",
    [label for label, found in OPERATIONS.items() if found.body or found.query or found.path_parameters],
)
def test_what_the_document_forbids_is_answered_as_it_says(store: ServedStore, label: str) -> None:
    _try(store, label, schemathesis.GenerationMode.NEGATIVE)


def _try(store: ServedStore, label: str, mode: schemathesis.GenerationMode) -> None:
    @seed(0)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode), exists=st.booleans())
    def answered(case: schemathesis.Case, exists: bool) -> None:
        if exists:
            for name in set(case.path_parameters or ()) & store.ids.keys():
                case.path_parameters[name] = store.ids[name]
        assume(_is_short(case.body) and _is_short(case.query))
        answer = case.call(base_url=store.url, headers=AUTHORIZATION, session=store.session)
        case.validate_response(answer, checks=CHECKED)

    answered()


def _is_short(given: Any) -> bool:
    """Whether a request does not wait."""
    if not isinstance(given, dict):
        return True
    for name in ("wait_seconds", "timeout_seconds"):
        try:
            if float(given.get(name, 0)) > LONGEST_WAIT_SECONDS:
                given[name] = LONGEST_WAIT_SECONDS
        except (TypeError, ValueError):
            pass
    return True
