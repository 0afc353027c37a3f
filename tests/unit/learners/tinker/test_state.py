import json
import random
from pathlib import Path

import pytest

from agl.errors import CheckpointError
from agl.learners.tinker.state import FILE, SavedState, read_state, write_state

FITS = {"base_model": "Qwen/Qwen3-8B", "rank": 8}


def state_of(seed: int) -> SavedState:
    return SavedState(
        path="tinker://run/weights/a", policy_version=3, optimizer_steps=7, rng=random.Random(seed)
    )


def test_what_is_written_is_read_with_the_random_numbers_that_follow(tmp_path: Path) -> None:
    state = state_of(5)
    state.rng.random()
    write_state(tmp_path / "state", state, FITS)
    read = read_state(tmp_path / "state", FITS)
    assert (read.path, read.policy_version, read.optimizer_steps) == ("tinker://run/weights/a", 3, 7)
    assert read.rng.random() == state.rng.random()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    with pytest.raises(CheckpointError, match="not empty"):
        write_state(tmp_path, state_of(0), FITS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"no checkpoint of learner=tinker: it has no tinker\.json"),
        ("{", "cannot be read"),
        ("{}", "cannot be read"),
        (json.dumps({"format": 2}), "has checkpoint format 2"),
    ],
)
def test_a_folder_without_a_whole_state_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        read_state(tmp_path, FITS)


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path / "state", state_of(0), FITS)
    with pytest.raises(CheckpointError, match="its rank is 8, here it is 16"):
        read_state(tmp_path / "state", {**FITS, "rank": 16})
