from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from agl.errors import ConfigError, InferenceError
from agl.inference.huggingface import load_model
from agl.inference.weights import put_weights
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights

EMBEDDING, HEAD, UP = "model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def model(policy: Policy) -> Any:
    return load_model(policy, dtype=torch.float32, device=torch.device("cpu"))


def doubled(model: Any) -> dict[str, torch.Tensor]:
    """The model's weights times two; tied tensors stay one tensor."""
    copies: dict[int, torch.Tensor] = {}
    return {
        name: copies.setdefault(own.data_ptr(), own.detach() * 2) for name, own in model.state_dict().items()
    }


def put(model: Any, policy: Policy, tensors: dict[str, torch.Tensor]) -> None:
    put_weights(model, PolicyWeights(policy_version=4, tensors=tensors), policy)


@pytest.mark.parametrize("leave_out", [[], [HEAD], [EMBEDDING]])
def test_tied_tensors_may_be_given_once_or_twice(model: Any, policy: Policy, leave_out: list[str]):
    expected = {name: tensor.clone() for name, tensor in doubled(model).items()}
    put(model, policy, {name: tensor for name, tensor in doubled(model).items() if name not in leave_out})
    for name, own in model.state_dict().items():
        torch.testing.assert_close(own, expected[name], atol=0, rtol=0)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop(UP), f"1 missing tensors, first {UP}"),
        (lambda tensors: tensors.update({"x.lora_A": torch.zeros(1)}), "1 unknown tensors, first x.lora_A"),
        (
            lambda tensors: tensors.update({UP: torch.zeros(3)}),
            r"up_proj.weight has shape \(3,\) instead of \(64, 32\)",
        ),
        (lambda tensors: tensors.update({HEAD: tensors[HEAD] + 1}), "are one tensor in the model but differ"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(model: Any, policy: Policy, change: Any, said: str):
    before = {name: own.clone() for name, own in model.state_dict().items()}
    tensors = doubled(model)
    change(tensors)
    with pytest.raises(InferenceError, match=f"policy version 4 do not fit: .*{said}"):
        put(model, policy, tensors)
    for name, own in model.state_dict().items():
        assert torch.equal(own, before[name])


def test_a_folder_is_as_good_as_tensors(model: Any, policy: Policy, tmp_path: Path):
    expected = doubled(model)
    other = load_model(policy, dtype=torch.float32, device=torch.device("cpu"))
    other.load_state_dict(expected)
    other.save_pretrained(tmp_path)
    put_weights(model, PolicyWeights(policy_version=1, path=tmp_path), policy)
    assert torch.equal(model.state_dict()[UP], expected[UP])


def test_a_folder_that_is_not_there_is_named(model: Any, policy: Policy, tmp_path: Path):
    with pytest.raises(ConfigError, match="does not exist"):
        put_weights(model, PolicyWeights(policy_version=1, path=tmp_path / "gone"), policy)


def test_weights_without_content_are_refused(model: Any, policy: Policy):
    with pytest.raises(InferenceError, match="neither tensors nor a path"):
        put_weights(model, PolicyWeights(policy_version=1), policy)


def test_weights_that_a_service_keeps_name_the_engine_that_serves_them(model: Any, policy: Policy):
    with pytest.raises(InferenceError, match=r"tinker://a/sampler_weights/b.*inference=tinker"):
        put_weights(model, PolicyWeights(policy_version=1, remote="tinker://a/sampler_weights/b"), policy)
