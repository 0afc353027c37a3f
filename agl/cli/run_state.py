"""RunState: what is known of a run, by its folder and by its entry in a store; how far it is and how well it does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from agl.cli.run_folder import ENDING_FILE, LOCK_FILE, RUNS, SETTINGS_FILE
from agl.errors import StoreError
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN, store_to_read
from agl.types import MetricQuery, Run, RunQuery

METRICS_FILE = "metrics.jsonl"
REPORT_FILE = "evaluation.json"
REWARDS = ("train/reward",)
"""What a training run reports of its own rollouts."""
HELD_OUT = ("val/reward", "search/best_reward")
"""And of held-out tasks, in the order of preference."""
STOPPED = "stopped"
"""The status of a run that never said how it ended and has no process any more."""
_TAIL_BYTES = 1024 * 1024
"""Of a file of metrics, where the newest numbers are."""
_EVALUATION = "EvaluationRun"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run at a moment. What nobody knows is None.

    Args:
        run_id: in the store; the name of the run's folder.
        folder: of the run, where it has one here.
        name: of the recipe.
        command: ``train``, ``eval`` or ``run``.
        status: the store's word, ``stopped``, ``unreadable``, or ``elsewhere`` where the records are served.
        created_at: when it began, Unix seconds.
        finished_at: when it ended.
        step: the newest iteration with numbers.
        total_steps: that it is to have.
        finished_rollouts: of the run.
        rollouts: all of the run.
        reward: the newest mean of its own rollouts.
        held_out_reward: the newest mean on held-out tasks; of an evaluation, its result.
        problem: why the records cannot be read.
    """

    run_id: str
    folder: Path | None = None
    name: str | None = None
    command: str | None = None
    status: str = "elsewhere"
    created_at: float | None = None
    finished_at: float | None = None
    step: int | None = None
    total_steps: int | None = None
    finished_rollouts: int | None = None
    rollouts: int | None = None
    reward: float | None = None
    held_out_reward: float | None = None
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        values = asdict(self)
        folder = values.pop("folder")
        return {**values, "run_dir": None if folder is None else str(folder)}

    @property
    def stands_at(self) -> str | None:
        """How far it is: ``iteration 12/60``, or ``120/200 rollouts`` where it has no iterations."""
        if self.step is not None:
            return f"iteration {self.step}" + (f"/{self.total_steps}" if self.total_steps else "")
        if self.rollouts is None:
            return None
        return f"{self.finished_rollouts}/{self.rollouts} rollouts"


def run_folders() -> list[Path]:
    """Return the folders of the runs under ``runs/``, those that began last first."""
    files = list(RUNS.glob(f"*/{SETTINGS_FILE}"))
    return [file.parent for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)]


async def state_of_folder(folder: Path) -> RunState:
    """Return what a run's folder, and the store in it, know of the run; a damaged file is said, not raised."""
    state = _state_of_files(folder)
    if not (folder / FILE_IN_RUN).is_file():
        return state
    try:
        async with store_to_read(str(folder)) as store:
            run = await run_of_store(store, state.run_id)
            return state if run is None else await _with_records(state, run, store)
    except StoreError as error:
        return replace(state, status="unreadable", problem=f"{folder / FILE_IN_RUN}: {error}")


def _state_of_files(folder: Path) -> RunState:
    """What the folder knows without its store."""
    settings, values = settings_of(folder), _newest_numbers(folder / METRICS_FILE)
    is_evaluation = str(settings.get("_target_", "")).endswith(_EVALUATION)
    return RunState(
        run_id=folder.resolve().name,
        folder=folder,
        name=_text(settings.get("name")),
        command="eval" if is_evaluation else "train",
        created_at=(folder / SETTINGS_FILE).stat().st_mtime,
        step=None if "step" not in values else int(values["step"]),
        total_steps=None if is_evaluation else _total_steps(settings),
        reward=_first(values, REWARDS),
        held_out_reward=_evaluated(folder) if is_evaluation else _first(values, HELD_OUT),
    )


async def _with_records(state: RunState, run: Run, store: LightningStore) -> RunState:
    recorded = await state_of_run(run, store)
    status = recorded.status
    if status == "running" and state.folder is not None and not is_at_work(state.folder):
        status = STOPPED
    numbers = state.step is not None
    return replace(
        state,
        status=status,
        command=recorded.command or state.command,
        name=recorded.name or state.name,
        created_at=recorded.created_at,
        finished_at=recorded.finished_at,
        finished_rollouts=recorded.finished_rollouts,
        rollouts=recorded.rollouts,
        step=state.step if numbers else recorded.step,
        reward=state.reward if numbers else recorded.reward,
        held_out_reward=recorded.held_out_reward if state.held_out_reward is None else state.held_out_reward,
    )


async def run_of_store(store: LightningStore, run_id: str) -> Run | None:
    """Return the run of that id, else the newest, None where the store has no run."""
    newest: Run | None = None
    query = RunQuery(order="desc")
    while True:
        page = await store.query_runs(query)
        for run in page.items:
            newest = newest or run
            if run.run_id == run_id:
                return run
        if page.next_cursor is None:
            return newest
        query = query.model_copy(update={"cursor": page.next_cursor})


async def state_of_run(run: Run, store: LightningStore) -> RunState:
    """Return what the store knows of the run."""
    counts = (await store.statistics(run_id=run.run_id))["rollouts"]
    ended = sum(counts.get(status, 0) for status in ("succeeded", "failed", "cancelled"))
    values: dict[str, float] = {}
    steps: list[int] = []
    for name in (*REWARDS, *HELD_OUT):
        points = (
            await store.query_metrics(MetricQuery(run_id=run.run_id, names=(name,), order="desc", limit=1))
        ).items
        if points:
            values[name] = points[0].value
            steps.append(points[0].step)
    return RunState(
        run_id=run.run_id,
        name=run.name,
        command=run.command or None,
        status=run.status,
        created_at=run.created_at,
        finished_at=run.finished_at,
        step=max(steps, default=None),
        total_steps=_total_steps(run.settings) if run.command == "train" else None,
        finished_rollouts=ended,
        rollouts=sum(counts.values()),
        reward=_first(values, REWARDS),
        held_out_reward=_first(values, HELD_OUT),
    )


def is_at_work(folder: Path) -> bool:
    """Whether a process works on the run now, as far as can be told.

    Where the system has no locks, a run that has not come to its end is taken for one at work; so is one that takes
    none, as a script of a user's own.
    """
    if find_spec("fcntl") is None:  # Windows
        return not (folder / ENDING_FILE).exists()
    import fcntl

    try:
        with (folder / LOCK_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # somebody has it, or there is none
        return True
    return False


def settings_of(folder: Path) -> Mapping[str, Any]:
    """Return a run's settings as they were written down; empty where they cannot be read."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it was built
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        found = yaml.load((folder / SETTINGS_FILE).read_text(encoding="utf-8"), Loader=loader)
        if isinstance(found, dict):
            return cast("Mapping[str, Any]", found)
    return {}


def _total_steps(settings: Mapping[str, Any]) -> int | None:
    algorithm = settings.get("algorithm")
    total = cast("Mapping[str, Any]", algorithm).get("iterations") if isinstance(algorithm, Mapping) else None
    return total if isinstance(total, int) else None


def _newest_numbers(file: Path) -> dict[str, float]:
    """The newest value of each number in a run's file of metrics, and the newest step."""
    values: dict[str, float] = {}
    with suppress(OSError), file.open("rb") as lines:
        lines.seek(max(0, lines.seek(0, os.SEEK_END) - _TAIL_BYTES))
        for line in lines:
            with suppress(ValueError, AttributeError):  # cut at its beginning, or being written
                found = json.loads(line).items()
                values |= {name: float(value) for name, value in found if isinstance(value, int | float)}
    return values


def _evaluated(folder: Path) -> float | None:
    """The mean reward that an evaluation came to."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        report = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
        mean = report["evaluated"]["reward"]["mean"]
        return None if mean is None else float(mean)
    return None


def _first(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((values[name] for name in names if name in values), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
