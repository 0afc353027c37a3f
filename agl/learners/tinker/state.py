"""What a checkpoint of the Tinker learner is: the name of a state that the service keeps, and what is counted here."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agl.errors import CheckpointError

FILE = "tinker.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """A state of the learner.

    Args:
        path: by which the service knows weights and optimizer.
        policy_version: counted in weight updates.
        optimizer_steps: taken so far.
        rng: of the minibatches' order.
    """

    path: str
    policy_version: int
    optimizer_steps: int
    rng: random.Random


def write_state(folder: Path, state: SavedState, fits: Mapping[str, Any]) -> None:
    """Write the state into a folder, flushed to disk.

    Args:
        folder: empty.
        state: to write.
        fits: what must be the same for the state to be loaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty; a checkpoint needs a folder of its own")
    content = {
        "format": FORMAT,
        "fits": dict(fits),
        "path": state.path,
        "policy_version": state.policy_version,
        "optimizer_steps": state.optimizer_steps,
        "random": state.rng.getstate(),
    }
    with (folder / FILE).open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def read_state(folder: Path, fits: Mapping[str, Any]) -> SavedState:
    """Return the state in a folder.

    Raises:
        CheckpointError: there is none, or one of another policy.
    """
    try:
        content = cast("dict[str, Any]", json.loads((folder / FILE).read_text(encoding="utf-8")))
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{folder} has checkpoint format {content['format']}; this agl reads {FORMAT}"
            )
        version, numbers, gauss = content["random"]
        rng = random.Random()
        rng.setstate((version, tuple(numbers), gauss))
        state = SavedState(
            path=str(content["path"]),
            policy_version=int(content["policy_version"]),
            optimizer_steps=int(content["optimizer_steps"]),
            rng=rng,
        )
        made_for = cast("dict[str, Any]", content["fits"])
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is no checkpoint of learner=tinker: it has no {FILE}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / FILE} cannot be read: {error!r}") from error
    for name, value in fits.items():
        if made_for.get(name) != value:
            raise CheckpointError(
                f"{folder} was written by another learner: its {name} is {made_for.get(name)}, here it is {value}; "
                "resume with the settings it was made with"
            )
    return state
