"""The losses equal verl's on seeded inputs (made by scripts/make_verl_oracle.py with verl 0.9.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from agl.learners.torch.losses import clipped_surrogate, kl_divergence, squared_value_error

ORACLE = json.loads((Path(__file__).parents[3] / "data" / "verl_oracle.json").read_text())
MASK = torch.tensor(ORACLE["mask"], dtype=torch.bool)


def sampled(name: str) -> torch.Tensor:
    """The named values at the sampled tokens."""
    return torch.tensor(ORACLE[name], dtype=torch.float64)[MASK]


@pytest.mark.parametrize(("dual_clip", "key"), [(3.0, "dual_clip_3"), (None, "dual_clip_1e9")])
def test_the_clipped_loss_equals_verl(dual_clip: float | None, key: str) -> None:
    settings = ORACLE["policy_loss"]
    loss, _, _ = clipped_surrogate(
        sampled("new_logprobs"),
        sampled("old_logprobs"),
        sampled("advantages"),
        clip_low=settings["clip_low"],
        clip_high=settings["clip_high"],
        dual_clip=dual_clip,
    )
    assert float(loss.mean()) == pytest.approx(settings[key], abs=1e-9)


def test_the_value_loss_equals_verl() -> None:
    loss = squared_value_error(
        sampled("new_values"), sampled("returns"), sampled("values"), clip=ORACLE["value_loss"]["value_clip"]
    )
    assert float(loss.mean()) == pytest.approx(ORACLE["value_loss"]["loss"], abs=1e-9)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_estimates_equal_verl(estimator: str) -> None:
    ours = kl_divergence(sampled("new_logprobs"), sampled("old_logprobs"), estimator)  # type: ignore[arg-type]
    theirs = torch.tensor(ORACLE["kl"][estimator], dtype=torch.float64)[MASK]
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)
