"""A run as agl show shows it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from listed_records import NOON, listed_store
from snapshots import WIDTHS, require_snapshot

from agl.cli.run_state import RunState
from agl.cli.show.run import (
    RunRecord,
    counts_of,
    metrics_of,
    metrics_of_folder,
    report_of_folder,
    run_as_json,
    run_lines,
)
from agl.errors import ConfigError
from agl.types import ErrorInfo, NamedResources, ProxyLLM, RolloutRequest

FOLDER = Path("runs") / "2026-09-21_12-00-00-ppo_sql"


def trained(**changes: Any) -> RunRecord:
    """A training run of 40 iterations in 60, with a folder."""
    state = RunState(
        run_id=FOLDER.name,
        folder=FOLDER,
        name="ppo_sql",
        command="train",
        status="stopped",
        created_at=NOON,
        step=40,
        total_steps=60,
        reward=0.5,
        held_out_reward=0.75,
    )
    record: dict[str, Any] = {
        "state": state,
        "settings": {
            "algorithm": {"_target_": "agl.algorithms.grpo.GRPO", "save_every": 5, "iterations": 60},
            "policy": {"_target_": "agl.types.policy.Policy", "path": "Qwen/Qwen2.5-0.5B", "lora": None},
            "agent": {"_target_": "agl.agents.function.FunctionAgent", "target": "agent.py:agent"},
            "seed": 0,
        },
        "git_commit": "10cd7c60292715c5eaf0ca02d21e2da38a96118d",
        "counts": {"succeeded": 120, "failed": 3, "cancelled": 1, "pending": 2, "running": 2},
        "causes": Counter({"TimeoutError": 2, "ValueError": 1}),
        "metrics": {
            "train/reward": [(step, step / 80) for step in range(1, 41)],
            "val/reward": [(0, 0.25), (20, 0.5), (40, 0.75)],
            "update/kl": [(1, 0.001), (40, 0.02)],
            "once": [(1, 2.0)],
            "total/rollouts/without_reward": [(40, 4.0)],
        },
        "resources": NamedResources(
            resources_id="rs-9",
            version=9,
            resources={"llm": ProxyLLM(base_url="http://x", model="policy", policy_version=40)},
            created_at=NOON,
        ),
    }
    return RunRecord(**(record | changes))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_training_run_is_shown_with_its_curve(width: int, in_folder: Path) -> None:
    (FOLDER / "policy").mkdir(parents=True)
    for name in ("iteration-000010", "iteration-000020"):
        (FOLDER / "checkpoints" / name).mkdir(parents=True)
    (FOLDER / "agl.log").touch()
    lines = run_lines(trained(), [], now=NOON + 7200, width=width, full=False)
    assert max(len(line) for line in lines if not line.startswith("agl ")) <= width
    require_snapshot(f"show_run_{width}", [line.replace("\\", "/") for line in lines])


def test_other_numbers_are_drawn_on_request_each_by_itself(in_folder: Path) -> None:
    lines = run_lines(trained(), ["update/kl", "once"], now=NOON, width=80, full=False)
    assert "update/kl" in lines
    assert "  2 at step 1: a curve needs two" in lines
    assert not any("train/reward" in line for line in lines)
    with pytest.raises(ConfigError, match=r"--metric kl: .* no such number; it has once, total/"):
        run_lines(trained(), ["kl"], now=NOON, width=80, full=False)


def test_all_settings_and_numbers_are_shown_where_all_is_asked_for(in_folder: Path) -> None:
    lines = run_lines(trained(), [], now=NOON, width=80, full=True)
    assert '    "save_every": 5,' in lines
    assert any(line.split() == ["update/kl", "0.02"] for line in lines)


def test_a_run_of_a_store_without_a_folder_says_how_to_go_on(in_folder: Path) -> None:
    state = RunState(run_id="r", status="running", created_at=NOON, finished_rollouts=0, rollouts=0)
    lines = run_lines(
        RunRecord(state=state, place="--store-url http://s:1"), [], now=NOON + 5, width=80, full=False
    )
    assert lines == [
        "Run         r",
        "Command     agl ?",
        "Status      running, 0/0 rollouts",
        "Began       2026-09-21 14:13:20, 5s ago; took 5.00s",
        "",
        "agl ls rollouts --run r --store-url http://s:1",
    ]


async def test_counters_causes_and_numbers_come_from_the_store() -> None:
    store, _ = listed_store()
    async with store:
        await store.add_run(name="x", run_id="r")
        for cause in ("KeyError", "KeyError", "ValueError"):
            held = await store.start_rollout(RolloutRequest(task=1, run_id="r"))
            await store.update_attempt(
                held.rollout.rollout_id,
                held.attempt.attempt_id,
                status="failed",
                error=ErrorInfo(cause=cause),
            )
        await store.enqueue_rollout(RolloutRequest(task=1, run_id="other"))
        await store.add_metrics("r", 1, {"a": 1.0, "b": 2.0})
        await store.add_metrics("r", 2, {"a": 3.0})
        counts, causes = await counts_of(store, "r", on_progress=lambda _: None)
        assert (counts["failed"], counts["pending"]) == (3, 0)
        assert causes == {"KeyError": 2, "ValueError": 1}
        assert await metrics_of(store, "r") == {"a": [(1, 1.0), (2, 3.0)], "b": [(1, 2.0)]}


def test_numbers_and_reports_of_a_folder_are_read_past_damage(in_folder: Path) -> None:
    (in_folder / "metrics.jsonl").write_text('{"step": 1, "time": 5, "a": 1}\n{"a": 2}\n[]\n{"step": 2, "a"')
    assert metrics_of_folder(in_folder) == {"a": [(1, 1.0)]}
    assert metrics_of_folder(in_folder / "none") == {}
    assert report_of_folder(in_folder) is None
    (in_folder / "evaluation.json").write_text('{"evaluated": {}, "mode": "val"}')
    record = trained(report=report_of_folder(in_folder))
    assert "  evaluation.json is not what this version writes" in run_lines(
        record, [], now=NOON, width=80, full=False
    )


def test_plain_values_have_all_of_it() -> None:
    values = json.loads(json.dumps(run_as_json(trained())))
    assert (values["kind"], values["run"]["step"]) == ("run", 40)
    assert values["failed_by_cause"] == {"TimeoutError": 2, "ValueError": 1}
    assert values["metrics"]["update/kl"] == [[1, 0.001], [40, 0.02]]
