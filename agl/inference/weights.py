"""Put a new version of the weights into a served model, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from agl.errors import InferenceError
from agl.inference.huggingface import load_model
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights


def put_weights(model: Any, weights: PolicyWeights, policy: Policy) -> None:
    """Copy ``weights`` into the model's own tensors; nothing is changed unless all of them fit.

    Of tensors that the model ties together (input and output embeddings, often), one is enough.

    Raises:
        InferenceError: with status 400, when a tensor is missing, unknown or of another shape.
        ConfigError: the folder cannot be loaded.
    """
    version = weights.policy_version
    if weights.tensors is not None:
        tensors = weights.tensors
    elif weights.path is not None:
        tensors = load_model(
            replace(policy, path=str(weights.path)), dtype=model.dtype, device=torch.device("cpu")
        ).state_dict()
    elif weights.remote is not None:
        raise InferenceError(
            f"weights of policy version {version} are kept by a service ({weights.remote}); serve them with the engine "
            "of the same service: learner=tinker goes with inference=tinker",
            status=400,
        )
    else:
        raise InferenceError(
            f"weights of policy version {version} hold neither tensors nor a path", status=400
        )
    pairs = _matched(model.state_dict(), tensors, version)
    with torch.no_grad():
        for own, new in pairs:
            own.copy_(new)


def _matched(
    own: Mapping[str, Tensor], new: Mapping[str, Tensor], version: int
) -> list[tuple[Tensor, Tensor]]:
    """Return each of the model's tensors with its new value."""
    problems: list[str] = []
    unknown = sorted(new.keys() - own.keys())
    if unknown:
        problems.append(f"{len(unknown)} unknown tensors, first {unknown[0]}")
    tied: dict[int, list[str]] = {}
    for name, tensor in own.items():
        tied.setdefault(tensor.data_ptr(), []).append(name)
    pairs: list[tuple[Tensor, Tensor]] = []
    missing: list[str] = []
    for names in tied.values():
        given = [name for name in names if name in new]
        if not given:
            missing.append(names[0])
            continue
        problems.extend(
            f"{name} has shape {tuple(new[name].shape)} instead of {tuple(own[name].shape)}"
            for name in given
            if own[name].shape != new[name].shape
        )
        first = new[given[0]]
        if any(
            new[name].data_ptr() != first.data_ptr() and not torch.equal(new[name], first)
            for name in given[1:]
        ):
            problems.append(f"{' and '.join(given)} are one tensor in the model but differ")
        pairs.append((own[given[0]], first))
    if missing:
        problems.insert(0, f"{len(missing)} missing tensors, first {missing[0]}")
    if problems:
        raise InferenceError(
            f"weights of policy version {version} do not fit: {'; '.join(problems)}", status=400
        )
    return pairs
