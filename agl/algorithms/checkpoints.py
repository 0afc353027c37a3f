"""Checkpoints of a run: complete or absent, never half.

A checkpoint is written into a hidden folder, synced and renamed, so that a kill at any moment leaves the older one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from agl.errors import CheckpointError
from agl.evaluation.counts import RolloutCounts
from agl.learners.base import Learner

log = logging.getLogger(__name__)
FOLDER = "checkpoints"
"""In the run's folder."""
STATE = "state.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Where the loop stands behind an iteration; the task order follows from the iteration and the seed.

    ``elapsed_seconds`` is the time of all iterations, those of earlier processes of the run included. Where rounds of
    sampling have several optimizer steps each, ``iteration`` counts these, and ``round`` and ``steps_in_round`` say
    whose they are.
    """

    iteration: int = 0
    counts: RolloutCounts = field(default_factory=RolloutCounts)
    elapsed_seconds: float = 0.0
    round: int = 0
    steps_in_round: int = 0


async def save_checkpoint(folder: Path, state: LoopState, learner: Learner, *, keep: int) -> Path:
    """Write ``folder/iteration-000012`` and remove all but the newest ``keep``; return its path."""
    final = folder / f"iteration-{state.iteration:06d}"
    partial = folder / f".partial-{state.iteration:06d}"
    await asyncio.to_thread(_make_empty, partial / "learner", inside=partial)
    await learner.save(partial / "learner")
    await asyncio.to_thread(_complete, partial, final, state, keep)
    return final


def _make_empty(learner_folder: Path, *, inside: Path) -> None:
    shutil.rmtree(inside, ignore_errors=True)
    learner_folder.mkdir(parents=True)


def _complete(partial: Path, final: Path, state: LoopState, keep: int) -> None:
    """Give the checkpoint its state and its name, then remove the older ones."""
    with (partial / STATE).open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **_plain(state)}, file)
        file.flush()
        os.fsync(file.fileno())
    _sync(partial)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    _sync(final.parent)
    for old in _checkpoints(final.parent)[:-keep]:
        shutil.rmtree(old)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, None when there is none."""
    found = _checkpoints(folder)
    return found[-1] if found else None


def checkpoint_to_resume(folder: Path, *, resume: bool) -> Path | None:
    """Return where a resumed run goes on; None for a new one, and for one that was killed before its first checkpoint.

    Args:
        folder: of the run's checkpoints.
        resume: whether the run is a resumed one.
    """
    saved = newest_checkpoint(folder) if resume else None
    if resume and saved is None:
        log.warning("no checkpoint in %s yet: starting over from the first policy", folder)
    return saved


async def load_checkpoint(path: Path, learner: Learner) -> LoopState:
    """Bring the learner to the checkpoint and return where the loop stood.

    Raises:
        CheckpointError: the folder is not a complete checkpoint of this learner's policy.
    """
    try:
        saved = json.loads((path / STATE).read_text(encoding="utf-8"))
        if saved.pop("format") != FORMAT:
            raise CheckpointError(f"{path} was written by another version of agl; start a new run")
        counts = saved.pop("counts")
        failed: Counter[str] = Counter(counts.pop("failed"))
        state = LoopState(counts=RolloutCounts(failed=failed, **counts), **saved)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a complete checkpoint: {error}") from error
    await learner.load(path / "learner")
    return state


def _plain(state: LoopState) -> dict[str, Any]:
    counts = {field.name: getattr(state.counts, field.name) for field in fields(state.counts)}
    return {
        "iteration": state.iteration,
        "counts": counts,
        "elapsed_seconds": state.elapsed_seconds,
        "round": state.round,
        "steps_in_round": state.steps_in_round,
    }


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("iteration-*") if (path / STATE).is_file())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
