"""What is known of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from listed_records import NOON, listed_store

from agl.cli.run_folder import locked
from agl.cli.run_state import is_at_work, run_folders, settings_of, state_of_folder
from agl.types import RolloutRequest

EVALUATION = "_target_: agl.launch.evaluation.EvaluationRun\nname: ppo_sql\n"
TRAINING = "_target_: agl.trainer.Trainer\nname: ppo_sql\nalgorithm:\n  iterations: 60\n"


def run(name: str, settings: str = TRAINING, *, begun: float = NOON) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(settings)
    (folder / ".lock").touch()
    os.utime(folder / "settings.yaml", (begun, begun))
    return folder


async def record(folder: Path, *, ended: bool) -> None:
    store, clock = listed_store(folder / "store.sqlite")
    async with store:
        await store.add_run(name="ppo_sql", run_id=folder.name, command="train")
        held = await store.start_rollout(RolloutRequest(task=1, run_id=folder.name))
        await store.update_attempt(
            held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded", reward=1.0
        )
        await store.enqueue_rollout(RolloutRequest(task=2, run_id=folder.name))
        clock.now += 10
        if ended:
            await store.update_run(folder.name, status="succeeded")


async def test_a_folder_tells_how_far_its_run_is_and_how_well_it_does(in_folder: Path) -> None:
    folder = run("one")
    lines: list[dict[str, float | None]] = [
        {"step": 0, "val/reward": 0.25},
        {"step": 1, "train/reward": 0.5},
        {"step": 2, "train/reward": 0.75, "update/kl": None},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "tr')
    await record(folder, ended=True)
    state = await state_of_folder(folder)
    assert (state.status, state.stands_at) == ("succeeded", "iteration 2/60")
    assert (state.reward, state.held_out_reward) == (0.75, 0.25)
    assert (state.created_at, state.finished_at) == (NOON, NOON + 10)
    assert (state.finished_rollouts, state.rollouts) == (1, 2)
    assert state.as_json()["run_dir"] == str(Path("runs/one"))


async def test_a_run_whose_process_is_gone_is_stopped_not_running(in_folder: Path) -> None:
    folder = run("one")
    await record(folder, ended=False)
    assert (await state_of_folder(folder)).status == "stopped"
    with locked(folder):
        assert is_at_work(folder)
        assert (await state_of_folder(folder)).status == "running"
    (folder / ".lock").unlink()
    assert (await state_of_folder(folder)).status == "running"  # who takes no lock is believed


async def test_an_evaluation_has_its_result_and_a_run_elsewhere_what_its_folder_knows(
    in_folder: Path,
) -> None:
    folder = run("measured", EVALUATION)
    assert (await state_of_folder(folder)).held_out_reward is None
    (folder / "evaluation.json").write_text(json.dumps({"evaluated": {"reward": {"mean": 0.5}}}))
    state = await state_of_folder(folder)
    assert (state.command, state.held_out_reward, state.status) == ("eval", 0.5, "elsewhere")
    assert (state.stands_at, state.total_steps) == (None, None)


async def test_damaged_files_are_said_and_not_raised(in_folder: Path) -> None:
    folder = run("broken", "{")
    (folder / "store.sqlite").write_text("this is no database, and long enough to be looked at as one")
    (folder / "metrics.jsonl").write_text("[]\nnonsense\n")
    assert settings_of(folder) == {}
    state = await state_of_folder(folder)
    assert state.status == "unreadable"
    assert "store.sqlite" in (state.problem or "")


async def test_a_folder_that_was_renamed_still_has_its_run(in_folder: Path) -> None:
    folder = run("one")
    await record(folder, ended=True)
    state = await state_of_folder(folder.rename(folder.with_name("kept")))
    assert (state.run_id, state.rollouts) == ("kept", 2)


def test_the_runs_here_are_those_that_began_last_first(in_folder: Path) -> None:
    assert run_folders() == []
    folders = [run(str(number), begun=NOON + number) for number in range(3)]
    assert run_folders() == folders[::-1]
