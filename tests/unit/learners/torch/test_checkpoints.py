import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agl.errors import CheckpointError
from agl.learners.torch.checkpoints import (
    Checkpoint,
    copy_weights,
    fingerprint,
    read_checkpoint,
    write_checkpoint,
)
from agl.types.policy import Lora

FITS = {"architecture": "abc", "lora": None, "critic": "none"}
FILES = ("policy.safetensors", "critic.safetensors", "optimizers.pt", "counters.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoint = Checkpoint(
        policy={"w": torch.tensor([1.0, 2.0])},
        critic={},
        optimizers={"policy": {"state": {0: {"step": torch.tensor(3.0)}}}, "critic": None, "steps": 3},
        counters={"policy_version": 2, "random": [3, [1, 2], None]},
    )
    write_checkpoint(tmp_path / "learner", checkpoint, FITS)
    return tmp_path / "learner"


def test_what_was_written_is_read(folder: Path) -> None:
    read = read_checkpoint(folder, FITS)
    assert read.policy["w"].tolist() == [1.0, 2.0]
    assert read.critic == {}
    assert read.optimizers == {
        "policy": {"state": {0: {"step": torch.tensor(3.0)}}},
        "critic": None,
        "steps": 3,
    }
    assert read.counters == {"policy_version": 2, "random": [3, [1, 2], None]}


def test_a_checkpoint_never_overwrites(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="is not empty"):
        write_checkpoint(folder, Checkpoint(policy={}, critic={}, optimizers={}, counters={}), FITS)


@pytest.mark.parametrize("name", ["manifest.json", *FILES])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"no complete checkpoint: it has no {name}"):
        read_checkpoint(folder, FITS)


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_is_found(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        read_checkpoint(folder, FITS)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}'])
def test_a_broken_manifest_is_named(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json cannot be read"):
        read_checkpoint(folder, FITS)


def test_another_format_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99; this agl reads format 1"):
        read_checkpoint(folder, FITS)


@pytest.mark.parametrize("change", [{"architecture": "x"}, {"lora": {"rank": 8}}, {"critic": "head"}])
def test_another_policys_checkpoint_is_refused(folder: Path, change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=f"another learner: its {next(iter(change))} is"):
        read_checkpoint(folder, FITS | change)


def test_the_fingerprint_tells_architectures_apart_but_not_folders() -> None:
    def of(lora: Lora | None = None, **config: Any) -> dict[str, Any]:
        return fingerprint(SimpleNamespace(to_dict=lambda: config), lora=lora, critic="none")

    plain = of(hidden_size=32, _name_or_path="a", transformers_version="5", dtype="float32")
    assert plain == of(hidden_size=32, _name_or_path="b", transformers_version="6")
    assert plain != of(hidden_size=64)
    assert plain != of(Lora(), hidden_size=32)
    lora = of(Lora(target_modules=("q", "v")))
    assert json.loads(json.dumps(lora)) == lora  # what the manifest gives back


def test_weights_are_copied_in_place() -> None:
    target = {"w": torch.zeros(2, requires_grad=True)}
    copy_weights({"w": torch.tensor([1.0, 2.0])}, target, what="policy")
    assert target["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "first w"),
        ({"w": torch.zeros(2), "v": torch.zeros(1)}, "first v"),
        ({"w": torch.zeros(3)}, "shape"),
    ],
)
def test_weights_that_do_not_fit_are_refused(source: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(CheckpointError, match=f"the checkpoint's policy .*{message}"):
        copy_weights(source, {"w": torch.zeros(2)}, what="policy")
