"""A checkpoint on disk: weights, optimizers, counters, random states, and a manifest that proves it whole.

Every file is flushed to disk and its digest noted; the manifest is written last. Making the folder appear at
once (a temporary folder, renamed) is the caller's part.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from agl.errors import CheckpointError
from agl.types.policy import Lora

FORMAT = 1
MANIFEST = "manifest.json"
_WEIGHTS = {"policy": "policy.safetensors", "critic": "critic.safetensors"}
_OPTIMIZERS = "optimizers.pt"
_COUNTERS = "counters.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is kept.

    Args:
        policy: the trained parameters by name.
        critic: the critic's; empty without one.
        optimizers: their states: nested dicts and lists of tensors and plain values.
        counters: what is counted, and Python's random state, as JSON.
    """

    policy: Mapping[str, Tensor]
    critic: Mapping[str, Tensor]
    optimizers: dict[str, Any]
    counters: dict[str, Any]


def fingerprint(config: Any, *, lora: Lora | None, critic: str) -> dict[str, Any]:
    """Return what must be equal for a checkpoint to fit: architecture, adapter, kind of critic.

    Args:
        config: the model's transformers configuration.
        lora: the adapter's settings.
        critic: ``none``, ``head`` or ``model``.
    """
    settings = {
        key: value
        for key, value in config.to_dict().items()
        if key not in ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
    }
    text = json.dumps(settings, sort_keys=True, default=str)
    adapter = None if lora is None else json.loads(json.dumps(asdict(lora)))
    return {"architecture": hashlib.sha256(text.encode()).hexdigest(), "lora": adapter, "critic": critic}


def write_checkpoint(folder: Path, checkpoint: Checkpoint, fits: Mapping[str, Any]) -> None:
    """Write the checkpoint into an empty folder, which is made if need be.

    Raises:
        CheckpointError: the folder is not empty.
    """
    from safetensors import torch as safetensors

    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty; a checkpoint needs a folder of its own")
    digests: dict[str, str] = {}
    for name, weights in (("policy", checkpoint.policy), ("critic", checkpoint.critic)):
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in weights.items()}
        cast("Any", safetensors).save_file(tensors, folder / _WEIGHTS[name])
        digests[_WEIGHTS[name]] = _flushed(folder / _WEIGHTS[name])
    torch.save(checkpoint.optimizers, folder / _OPTIMIZERS)
    digests[_OPTIMIZERS] = _flushed(folder / _OPTIMIZERS)
    (folder / _COUNTERS).write_text(json.dumps(checkpoint.counters), encoding="utf-8")
    digests[_COUNTERS] = _flushed(folder / _COUNTERS)
    manifest = {"format": FORMAT, "fits": dict(fits), "sha256": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    _flushed(folder / MANIFEST)
    _flush_folder(folder)


def read_checkpoint(folder: Path, fits: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint in ``folder``, tensors on the CPU.

    Raises:
        CheckpointError: it is incomplete, damaged, of another format or of another policy.
    """
    from safetensors import torch as safetensors

    _check(folder, fits)
    optimizers = torch.load(folder / _OPTIMIZERS, map_location="cpu", weights_only=True)
    return Checkpoint(
        policy=cast("Any", safetensors).load_file(folder / _WEIGHTS["policy"]),
        critic=cast("Any", safetensors).load_file(folder / _WEIGHTS["critic"]),
        optimizers=optimizers,
        counters=json.loads((folder / _COUNTERS).read_bytes()),
    )


def copy_weights(source: Mapping[str, Tensor], target: Mapping[str, Tensor], *, what: str) -> None:
    """Copy each tensor of ``source`` into the parameter of the same name.

    Raises:
        CheckpointError: names or shapes differ.
    """
    if source.keys() != target.keys():
        first = min(source.keys() ^ target.keys())
        raise CheckpointError(
            f"the checkpoint's {what} has other parameters than the learner's, first {first}"
        )
    with torch.no_grad():
        for name, parameter in target.items():
            if parameter.shape != source[name].shape:
                raise CheckpointError(
                    f"the checkpoint's {what} parameter {name} has shape {tuple(source[name].shape)}, "
                    f"the learner's {tuple(parameter.shape)}"
                )
            parameter.copy_(source[name])


def _check(folder: Path, fits: Mapping[str, Any]) -> None:
    try:
        manifest = cast("dict[str, Any]", json.loads((folder / MANIFEST).read_bytes()))
        version, made_for, digests = manifest["format"], manifest["fits"], manifest["sha256"]
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is no complete checkpoint: it has no {MANIFEST}") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / MANIFEST} cannot be read: {error!r}") from error
    if version != FORMAT:
        raise CheckpointError(f"{folder} has checkpoint format {version}; this agl reads format {FORMAT}")
    for name in (*_WEIGHTS.values(), _OPTIMIZERS, _COUNTERS):
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{folder} is no complete checkpoint: it has no {name}")
        if _digest(path) != digests.get(name):
            raise CheckpointError(f"{path} is damaged: its content is not what was written")
    for name, value in fits.items():
        if made_for.get(name) != value:
            raise CheckpointError(
                f"{folder} was written by another learner: its {name} is {made_for.get(name)}, here it is "
                f"{value}; resume with the settings it was made with"
            )


def _flushed(path: Path) -> str:
    """Make the file durable and return its digest."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(cast("Any", file), "sha256").hexdigest()


def _flush_folder(folder: Path) -> None:
    """Make the folder's entries durable; Windows cannot and need not."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
