"""Choose the next token of every row of a batch, and say how likely that choice was.

The logprob reported is ``log_softmax(logits / temperature)`` at the chosen token, in float32 and BEFORE top_k and
top_p cut the distribution: that is what a learner can compute again from ids and temperature alone. At temperature
0 (the most likely token) it is the plain ``log_softmax(logits)``.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How a batch of rows is sampled, as tensors; None where no row needs it."""

    temperatures_B1: Tensor | None
    """Divides the logits; 1 for greedy rows. None when all are 1."""
    greedy_B: Tensor | None
    """True for the rows that take the most likely token."""
    all_greedy: bool
    cut: Tensor | None
    """The rows, by index, whose distribution top_k or top_p cuts."""
    top_ks_C1: Tensor | None
    top_ps_C1: Tensor | None

    @staticmethod
    def of_rows(
        temperatures: Sequence[float], top_ps: Sequence[float], top_ks: Sequence[int], device: torch.device
    ) -> SamplingSettings:
        """Return the settings of a batch; one entry a row, top_p 1 and top_k 0 are off."""
        greedy = [temperature == 0 for temperature in temperatures]
        divisors = [temperature or 1.0 for temperature in temperatures]
        cut = [
            row
            for row, (top_p, top_k) in enumerate(zip(top_ps, top_ks, strict=True))
            if (top_p < 1 or top_k > 0) and not greedy[row]
        ]
        no_limit = torch.iinfo(torch.int64).max

        def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, device=device, dtype=dtype)[:, None]

        plain = all(divisor == 1 for divisor in divisors)
        return SamplingSettings(
            temperatures_B1=None if plain else column(divisors, torch.float32),
            greedy_B=torch.tensor(greedy, device=device) if any(greedy) else None,
            all_greedy=all(greedy),
            cut=torch.tensor(cut, device=device) if cut else None,
            top_ks_C1=column([top_ks[row] or no_limit for row in cut], torch.int64) if cut else None,
            top_ps_C1=column([top_ps[row] for row in cut], torch.float32) if cut else None,
        )


def choose_tokens(
    logits_BV: Tensor, settings: SamplingSettings, uniforms: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the chosen ids and their logprobs, both of shape B.

    Args:
        logits_BV: as the model gives them.
        settings: of the same rows.
        uniforms: one number of [0, 1) a row, which alone decides the choice: a row's answer does not depend on its
            neighbours in the batch.
    """
    logits_BV = logits_BV.float()
    if settings.temperatures_B1 is not None:
        logits_BV = logits_BV / settings.temperatures_B1
    probs_BV = logits_BV.softmax(-1)
    if settings.all_greedy:
        ids_B = logits_BV.argmax(-1)
    else:
        ids_B = _invert(_cut_tails(probs_BV, settings), uniforms)
        if settings.greedy_B is not None:
            ids_B = torch.where(settings.greedy_B, logits_BV.argmax(-1), ids_B)
    return ids_B, probs_BV.gather(1, ids_B[:, None])[:, 0].log()


def _invert(weights_BV: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Return the ids at which the cumulative distribution passes the uniform numbers."""
    cumulative_BV = weights_BV.cumsum(-1)
    total_B1 = cumulative_BV[:, -1:]
    target_B1 = torch.tensor(uniforms, device=weights_BV.device, dtype=torch.float32)[:, None] * total_B1
    # Rounding must not reach the total: behind it lie only tokens of probability 0.
    target_B1 = torch.minimum(target_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    last = weights_BV.shape[-1] - 1  # reached by NaN only, which the caller sees in the logprob
    return torch.searchsorted(cumulative_BV, target_B1, right=True)[:, 0].clamp(max=last)


def _cut_tails(probs_BV: Tensor, settings: SamplingSettings) -> Tensor:
    """Return the probabilities, 0 outside top_k and then outside top_p of the rest; not renormalised."""
    if settings.cut is None:
        return probs_BV
    assert settings.top_ks_C1 is not None
    assert settings.top_ps_C1 is not None
    sorted_CV, order_CV = torch.sort(probs_BV[settings.cut], dim=-1, descending=True, stable=True)
    ranks_V = torch.arange(sorted_CV.shape[-1], device=probs_BV.device)
    sorted_CV = torch.where(ranks_V < settings.top_ks_C1, sorted_CV, 0.0)
    mass_C1 = sorted_CV.sum(-1, keepdim=True)
    before_CV = sorted_CV.cumsum(-1) - sorted_CV
    kept_CV = torch.where((before_CV < settings.top_ps_C1 * mass_C1) | (ranks_V == 0), sorted_CV, 0.0)
    return probs_BV.index_copy(0, settings.cut, torch.zeros_like(kept_CV).scatter(1, order_CV, kept_CV))
