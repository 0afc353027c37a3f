"""Resources and workers as agl show shows them."""

from __future__ import annotations

import json

import pytest
from listed_records import NOON
from snapshots import WIDTHS, require_snapshot

from agl.cli.lists.workers import WorkerState
from agl.cli.show.resources import resources_as_json, resources_lines, safe_resource, worker_lines
from agl.types import LLM, ModelEndpoint, NamedResources, PromptTemplate, ProxyLLM, Weights, Worker

RESOURCES = NamedResources(
    resources_id="ppo_sql-train-v3-7e73bd06",
    version=12,
    run_id="ppo_sql",
    created_at=NOON,
    resources={
        "prompt": PromptTemplate(
            template="You are a careful assistant, and you answer the question of the user in one word.\n\n{question}",
            version=2,
            parent="e04ed00c78f8",
        ),
        "llm": ProxyLLM(
            base_url="http://127.0.0.1:40001",
            model="policy",
            api_key="secret-key",
            sampling={"temperature": 1.0},
            policy_version=3,
        ),
        "large": LLM(base_url="https://me:secret-word@example.org/v1", model="large", api_key="none"),
        "gpu": ModelEndpoint(model="m*", urls=("http://gpu1:8000/v1",), api_key_env="GPU_KEY"),
        "policy": Weights(path="runs/one/policy", policy_version=3),
        "lookup": {"url": "http://u:secret-word@db", "auth_token": "secret-token", "limit": 3, "tags": ["a"]},
    },
)


@pytest.mark.parametrize("width", WIDTHS)
def test_resources_are_shown_without_secrets_and_prompts_as_text(width: int) -> None:
    lines = resources_lines(RESOURCES, is_latest=True, width=width)
    assert max(map(len, lines)) <= width
    assert "secret" not in "\n".join(lines)
    require_snapshot(f"show_resources_{width}", lines)


def test_plain_values_have_no_secrets_either() -> None:
    values = resources_as_json(RESOURCES, is_latest=False)
    assert "secret" not in json.dumps(values)
    assert values["resources"]["lookup"]["auth_token"] == "***"
    assert values["resources"]["large"]["api_key"] == "none"
    assert (values["kind"], values["version"], values["is_latest"]) == ("resources", 12, False)


def test_any_json_may_be_a_resource() -> None:
    assert [safe_resource(one) for one in (None, 3, "text", [{"password": "x"}])] == [
        None,
        3,
        "text",
        [{"password": "***"}],
    ]
    resources = RESOURCES.model_copy(update={"resources": {"note": "two\nlines"}})
    assert resources_lines(resources, is_latest=False, width=80)[-3:] == ["note: JSON", "  two", "  lines"]


def test_a_worker_is_shown_with_what_it_works_on() -> None:
    worker = Worker(
        worker_id="vm-1",
        host="vm",
        pid=7,
        status="busy",
        registered_at=NOON,
        last_heartbeat_at=NOON + 60,
        stats={"succeeded": 3, "failed": {"KeyError": 1}, "spans_lost": {}, "run_id": None},
    )
    lines = worker_lines(WorkerState(worker=worker, rollout_ids=["r-1", "r-2"]), now=NOON + 90, width=80)
    assert lines == [
        "Worker          vm-1",
        "Status          busy",
        "Host            vm, process 7",
        "Registered      2026-09-21 14:13:20",
        "Heard of        2026-09-21 14:14:20, 30s ago",
        "Works on        r-1",
        "                r-2",
        "Succeeded       3",
        'Failed          {"KeyError": 1}',
    ]
