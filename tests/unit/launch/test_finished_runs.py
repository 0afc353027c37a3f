"""What a run left: its policy before its checkpoints, versions that are kept, prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agl.errors import AglError, CheckpointError
from agl.launch.finished_runs import (
    best_prompts,
    kept_iterations,
    newest_weights,
    policy_from_checkpoint,
    weights_of_iteration,
)


def checkpoint(run: Path, iteration: int) -> Path:
    folder = run / "checkpoints" / f"iteration-{iteration:06d}"
    (folder / "learner").mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    return folder


def policy(run: Path) -> Path:
    (run / "policy").mkdir()
    (run / "policy" / "config.json").write_text("{}")
    return run / "policy"


def test_the_policy_comes_before_the_newest_checkpoint(tmp_path: Path) -> None:
    assert newest_weights(tmp_path) is None
    checkpoint(tmp_path, 2)
    last = checkpoint(tmp_path, 12)
    (tmp_path / "checkpoints" / "iteration-000020").mkdir()  # a kill left it half
    found = newest_weights(tmp_path)
    assert found is not None
    assert (found.folder, found.is_checkpoint) == (last, True)
    saved = policy(tmp_path)
    found = newest_weights(tmp_path)
    assert found is not None
    assert (found.folder, found.is_checkpoint) == (saved, False)


def test_a_version_is_found_in_its_checkpoint_or_in_the_policy_where_it_is_the_last(tmp_path: Path) -> None:
    kept = checkpoint(tmp_path, 4)
    saved = policy(tmp_path)
    assert kept_iterations(tmp_path) == [4]
    found = weights_of_iteration(tmp_path, 4, is_last=False)
    assert found is not None
    assert found.folder == kept
    last = weights_of_iteration(tmp_path, 4, is_last=True)
    assert last is not None
    assert last.folder == saved
    assert weights_of_iteration(tmp_path, 3, is_last=False) is None


def test_prompts_are_read_from_what_a_search_wrote(tmp_path: Path) -> None:
    assert best_prompts(tmp_path) == {}
    (tmp_path / "prompts").mkdir()
    best = {"candidate_id": "c", "prompts": {"ask": {"kind": "prompt_template", "template": "{q}"}}}
    (tmp_path / "prompts" / "best.json").write_text(json.dumps(best))
    assert best_prompts(tmp_path) == {"ask": {"kind": "prompt_template", "template": "{q}"}}


@pytest.mark.parametrize("text", ["{", "[]", '{"prompts": 1}', "{}"])
def test_prompts_that_cannot_be_read_are_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "best.json").write_text(text)
    with pytest.raises(AglError, match=r"best\.json is damaged"):
        best_prompts(tmp_path)


class FakeLearner:
    """Copies the checkpoint's one file; notes whether it was open."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.is_open, self.loaded = fails, False, ""

    async def __aenter__(self) -> FakeLearner:
        self.is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_open = False

    async def load(self, folder: Path) -> None:
        assert self.is_open
        self.loaded = folder.parent.name

    async def save_policy(self, folder: Path) -> None:
        assert self.is_open
        if self.fails:
            raise OSError("disk full")
        (folder / "config.json").write_text(self.loaded)


async def test_a_checkpoint_becomes_a_policy_folder_once(tmp_path: Path) -> None:
    saved, target = checkpoint(tmp_path, 7), tmp_path / "policies" / "seven"
    await policy_from_checkpoint(FakeLearner(), saved, target)  # type: ignore[arg-type]
    assert (target / "config.json").read_text() == "iteration-000007"
    await policy_from_checkpoint(FakeLearner(fails=True), saved, target)  # type: ignore[arg-type]


async def test_a_policy_that_cannot_be_written_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    target = tmp_path / "policies" / "seven"
    with pytest.raises(CheckpointError, match="disk full"):
        await policy_from_checkpoint(FakeLearner(fails=True), checkpoint(tmp_path, 7), target)  # type: ignore[arg-type]
    assert not list(target.parent.iterdir())
