"""SFT and DPO on the real recipe, in real processes: killed at any moment they go on as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, blocks
from train_processes import finished, metrics_of, resume_train, start_train, wait_for_iteration

from agl.config import check, compose
from agl.store.opening import store_to_read
from agl.store.paging import iter_rollouts

pytestmark = pytest.mark.timeout(
    600
)  # three runs of ``agl train``, which a busy machine may take a minute for each

COMMON = [
    "+recipe=sft_sql",
    "algorithm.rounds=2",
    "algorithm.tasks_per_round=5",
    "algorithm.group_size=4",
    "algorithm.minibatch_size=2",
    "algorithm.save_every=1",
    "algorithm.report_every=1",
    "data.num_val=2",
    "metrics.console=plain",
]
KINDS: dict[str, list[str]] = {
    "sft": ["algorithm.epochs=1", "learner.packing=true"],
    "dpo": ["algorithm=dpo", "learner.reference=true", "learner.learning_rate=1e-4"],
}


def rollouts_of(run_dir: Path) -> dict[str, tuple[str, int]]:
    """Of every rollout in the store: how it ended, and how often it was executed."""

    async def read() -> dict[str, tuple[str, int]]:
        async with store_to_read(str(run_dir)) as store:
            return {one.rollout_id: (one.status, one.num_attempts) async for one in iter_rollouts(store)}

    return asyncio.run(read())


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a run of this kind that nobody disturbed."""
    folder = tmp_path_factory.mktemp("runs")

    def whole_run(kind: str) -> Path:
        run_dir = folder / kind
        if not run_dir.exists():
            code, _, err = finished(start_train(run_dir, *COMMON, *KINDS[kind]))
            assert code == 0, err
        return run_dir

    return whole_run


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_killed_run_resumes_to_the_same_numbers_and_pays_no_rollout_twice(
    kind: str, whole_runs: Callable[[str], Path], tmp_path: Path
) -> None:
    whole = whole_runs(kind)
    run_dir = tmp_path / whole.name
    process = start_train(run_dir, *COMMON, *KINDS[kind])
    wait_for_iteration(run_dir, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = {name for name, (status, _) in rollouts_of(run_dir).items() if status == "succeeded"}

    code, _, err = finished(resume_train(run_dir))
    assert code == 0, err

    expected, resumed = metrics_of(whole), metrics_of(run_dir)
    assert sorted(resumed) == sorted(expected)
    for step, values in expected.items():
        assert resumed[step] == pytest.approx(values, rel=1e-3, abs=1e-4), step
    after = rollouts_of(run_dir)
    assert all(after[name] == ("succeeded", 1) for name in done)
    assert {name.removesuffix("-again") for name in after} == set(rollouts_of(whole))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_run_says_what_it_learned_from(kind: str, whole_runs: Callable[[str], Path]) -> None:
    lines = metrics_of(whole_runs(kind))
    last = lines[max(lines)]
    assert last["total/rollouts/enqueued"] == 2 * 5 * 4
    first = lines[1]
    if kind == "sft":
        assert (
            first["round/examples"]
            + sum(count for name, count in first.items() if name.startswith("round/left_out/"))
            == first["rollouts/succeeded"] - first["rollouts/untrainable"]
        )
    else:
        assert 1 <= first["round/pairs"] <= 5
    assert {"val/reward", "val/reward_greedy"} <= set(lines[0]) & set(last)


def chat_file(folder: Path) -> Path:
    file = folder / "chats.jsonl"
    messages = [
        {"role": "user", "content": "items(id,name)\nHow many items are there?"},
        {"role": "assistant", "content": "SELECT COUNT(*) FROM items"},
        {"role": "user", "content": "1 rows: 7"},
        {"role": "assistant", "content": "OK"},
    ]
    unreadable: dict[str, Any] = {"role": "user", "content": [{"type": "image_url"}]}
    file.write_text("\n".join(json.dumps({"messages": one}) for one in (messages, [unreadable, messages[1]])))
    return file


def test_an_earlier_runs_good_rollouts_and_a_file_are_learned_without_sampling(
    whole_runs: Callable[[str], Path], tmp_path: Path
) -> None:
    past = whole_runs("sft")
    run_dir = tmp_path / "given"
    given = [
        f"algorithm.stores=[{past}]",
        f"algorithm.files=[{chat_file(tmp_path)}]",
        "algorithm.group_size=0",
    ]
    code, out, err = finished(start_train(run_dir, *COMMON, *given, "algorithm.rounds=1"))
    assert code == 0, err
    lines, earlier = metrics_of(run_dir), metrics_of(past)
    chosen = max(line.get("round/examples", 0) for line in earlier.values())
    # The earlier run's preflight, of four rollouts, is in its store beside its rounds; the file has one.
    assert chosen + 1 <= lines[1]["round/examples"] <= chosen + 5
    assert "left out:" in out
    assert "1 unreadable_messages" in out
    assert lines[1]["total/rollouts/enqueued"] == 0
    names = rollouts_of(run_dir)
    assert names
    assert all("-e" in name for name in names)


def test_the_commands_of_the_page_have_right_settings() -> None:
    commands = [
        shlex.split(line)[2:]
        for block in blocks(ROOT / "docs" / "sft.md", "sh")
        for line in block.splitlines()
        if line.startswith("agl train +")
    ]
    assert len(commands) == 5
    for overrides in commands:
        check(compose("train", overrides))
