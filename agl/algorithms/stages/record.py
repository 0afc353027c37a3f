"""Record: what a finished stage leaves for the next ones, and for a resumed run: complete or absent."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from agl.algorithms.prompts.spending import Spent
from agl.errors import CheckpointError
from agl.evaluation.counts import RolloutCounts
from agl.learners.base import Learner
from agl.types import PromptTemplate

RESULT = "result.json"
LEARNER = "learner"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """What became of a stage.

    Args:
        spent: what it took.
        last_step: of the run's metrics.
        counts: what became of its training rollouts.
        prompts: what agents get from now on, by resource name.
        moved_weights: whether ``learner`` beside the file has what the next stage goes on from.
        policy_dir: the policy as an ordinary folder, where weights were moved.
        notes: what a person should know.
    """

    spent: Spent
    last_step: int
    counts: RolloutCounts = field(default_factory=RolloutCounts)
    prompts: Mapping[str, PromptTemplate] = field(default_factory=dict[str, PromptTemplate])
    moved_weights: bool = False
    policy_dir: Path | None = None
    notes: tuple[str, ...] = ()


async def save_record(folder: Path, record: StageRecord, learner: Learner | None) -> None:
    """Write the record, and before it what the learner holds where the stage moved weights."""
    if record.moved_weights and learner is not None:
        await asyncio.to_thread(_make_empty, folder / LEARNER)
        await learner.save(folder / LEARNER)
    await asyncio.to_thread(_write, folder, record)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _write(folder: Path, record: StageRecord) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counts = {one.name: getattr(record.counts, one.name) for one in fields(record.counts)}
    plain = asdict(record) | {
        "counts": counts,
        "prompts": {name: prompt.model_dump() for name, prompt in record.prompts.items()},
        "policy_dir": None if record.policy_dir is None else str(record.policy_dir),
    }
    partial = folder / f".{RESULT}.part"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(plain, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / RESULT)


def load_record(folder: Path) -> StageRecord | None:
    """Return the record of a finished stage, None where it has not finished.

    Raises:
        CheckpointError: the file was written by another version, or damaged.
    """
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        failed: Counter[str] = Counter(plain["counts"].pop("failed"))
        return StageRecord(
            spent=Spent(**plain["spent"]),
            last_step=plain["last_step"],
            counts=RolloutCounts(failed=failed, **plain["counts"]),
            prompts={name: PromptTemplate(**prompt) for name, prompt in plain["prompts"].items()},
            moved_weights=plain["moved_weights"],
            policy_dir=None if plain["policy_dir"] is None else Path(plain["policy_dir"]),
            notes=tuple(plain["notes"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not the record of a finished stage: {error}") from error
