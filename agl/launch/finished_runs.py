"""What a training run left in its folder to be used by others: its policy, its checkpoints, its prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from agl.algorithms.checkpoints import STATE, newest_checkpoint
from agl.algorithms.prompts.archive import FOLDER as PROMPTS
from agl.errors import AglError, CheckpointError
from agl.learners.base import Learner
from agl.types import PromptTemplate

POLICY = "policy"
CHECKPOINTS = "checkpoints"
_MODEL_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWeights:
    """A policy's weights in a run's folder.

    Args:
        folder: an ordinary Hugging Face folder, or a checkpoint.
        is_checkpoint: which of the two.
    """

    folder: Path
    is_checkpoint: bool


def newest_weights(run_dir: Path) -> SavedWeights | None:
    """Return the weights with which the run stands now: its policy, else its newest checkpoint, else None."""
    policy, checkpoint = run_dir / POLICY, newest_checkpoint(run_dir / CHECKPOINTS)
    if (policy / _MODEL_FILE).is_file():
        return SavedWeights(folder=policy, is_checkpoint=False)
    return None if checkpoint is None else SavedWeights(folder=checkpoint, is_checkpoint=True)


def weights_of_iteration(run_dir: Path, iteration: int, *, is_last: bool) -> SavedWeights | None:
    """Return the weights behind an iteration, None where they are gone; ``is_last`` where the run has no later one."""
    newest = newest_weights(run_dir)
    if is_last and newest is not None and not newest.is_checkpoint:
        return newest
    folder = run_dir / CHECKPOINTS / f"iteration-{iteration:06d}"
    return SavedWeights(folder=folder, is_checkpoint=True) if is_whole(folder) else None


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint is there, and complete."""
    return (folder / STATE).is_file()


def kept_iterations(run_dir: Path) -> list[int]:
    """Return the iterations of which there are checkpoints."""
    found = (run_dir / CHECKPOINTS).glob("iteration-*")
    return sorted(int(path.name.rpartition("-")[2]) for path in found if is_whole(path))


def best_prompts(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the prompts that a run chose, by resource name, as plain values; empty where it chose none.

    Raises:
        AglError: the file is not what a run writes.
    """
    file = run_dir / PROMPTS / "best.json"
    try:
        best = cast("Mapping[str, Any]", json.loads(file.read_text(encoding="utf-8")))
        found = {str(name): dict(prompt) for name, prompt in best["prompts"].items()}
        [PromptTemplate(**prompt) for prompt in found.values()]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        words = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise AglError(
            f"{file} is damaged: {words}; the prompts are also in {file.parent / 'best'}"
        ) from error
    return found


async def policy_from_checkpoint(learner: Learner, checkpoint: Path, folder: Path) -> None:
    """Write the weights of a checkpoint as an ordinary Hugging Face folder, whole or not at all.

    Args:
        learner: built as for the run that wrote the checkpoint, not open.
        checkpoint: of that run.
        folder: to write; one that is there is left as it is.

    Raises:
        CheckpointError: it is not a checkpoint of this learner.
    """
    if (folder / _MODEL_FILE).is_file():
        return
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        async with restored(learner, checkpoint):
            await learner.save_policy(partial)
        partial.rename(folder)
    except OSError as error:
        raise CheckpointError(f"the policy of {checkpoint} cannot be written to {folder}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@asynccontextmanager
async def restored(learner: Learner, checkpoint: Path) -> AsyncGenerator[None]:
    """Open the learner with what a checkpoint of its run holds.

    Raises:
        CheckpointError: it is not a checkpoint of this learner.
    """
    async with learner:
        await learner.load(checkpoint / "learner")
        yield
