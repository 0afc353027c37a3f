from __future__ import annotations

import random

import pytest
import torch

from agl.inference.sampling import SamplingSettings, choose_tokens

CPU = torch.device("cpu")
# Probabilities of 4 tokens that are easy to add up.
PROBS = [0.1, 0.4, 0.2, 0.3]


def choose(
    uniforms: list[float],
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    probs: list[float] = PROBS,
) -> tuple[list[int], torch.Tensor]:
    count = len(uniforms)
    settings = SamplingSettings.of_rows([temperature] * count, [top_p] * count, [top_k] * count, CPU)
    ids, logprobs = choose_tokens(torch.tensor([probs] * count).log(), settings, uniforms)
    return ids.tolist(), logprobs


def test_a_uniform_number_picks_the_token_whose_share_it_falls_into():
    ids, logprobs = choose([0.0, 0.09, 0.11, 0.49, 0.51, 0.69, 0.71, 1 - 2**-53])
    assert ids == [0, 0, 1, 1, 2, 2, 3, 3]
    expected = torch.tensor([PROBS[i] for i in ids]).log()
    torch.testing.assert_close(logprobs, expected, atol=1e-6, rtol=0)


def test_impossible_tokens_are_never_chosen():
    ids, _ = choose([0.0, 0.5, 1 - 2**-53], probs=[0.0, 0.5, 0.5, 0.0])
    assert ids == [1, 2, 2]


def test_temperature_sharpens_the_distribution_and_its_logprob():
    # At temperature 1/2 probabilities are squared: .01 .16 .04 .09 of .30, cumulative .033 .567 .700 1.
    ids, logprobs = choose([0.02, 0.04, 0.56, 0.58, 0.71], temperature=0.5)
    assert ids == [0, 1, 1, 2, 3]
    torch.testing.assert_close(logprobs[1], torch.tensor(0.16 / 0.30).log(), atol=1e-6, rtol=0)


def test_temperature_zero_takes_the_most_likely_token_with_its_plain_logprob():
    ids, logprobs = choose([0.0, 0.99], temperature=0.0)
    assert ids == [1, 1]
    torch.testing.assert_close(logprobs, torch.tensor([0.4, 0.4]).log(), atol=1e-6, rtol=0)


def test_top_k_cuts_before_top_p_and_the_logprob_stays_that_of_the_whole_distribution():
    assert set(choose([i / 20 for i in range(20)], top_k=2)[0]) == {1, 3}
    # Of the two most likely (.4, .3) the first holds .57 of the mass, so top_p .5 keeps it alone.
    ids, logprobs = choose([0.0, 0.5, 0.99], top_k=2, top_p=0.5)
    assert ids == [1, 1, 1]
    torch.testing.assert_close(logprobs, torch.tensor([0.4] * 3).log(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("top_p", "kept"), [(0.0, {1}), (0.39, {1}), (0.41, {1, 3}), (0.71, {1, 2, 3})])
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: set[int]):
    assert set(choose([i / 50 for i in range(50)], top_p=top_p)[0]) == kept


def test_rows_with_different_settings_do_not_influence_each_other():
    rng = random.Random(1)
    rows = [(t, p, k) for t in (0.0, 0.7, 1.0, 1.5) for p in (0.5, 1.0) for k in (0, 3)]
    logits = torch.randn(len(rows), 50, generator=torch.Generator().manual_seed(0))
    uniforms = [rng.random() for _ in rows]
    temperatures, top_ps, top_ks = map(list, zip(*rows, strict=True))
    together = choose_tokens(logits, SamplingSettings.of_rows(temperatures, top_ps, top_ks, CPU), uniforms)
    for i, (t, p, k) in enumerate(rows):
        ids, logprobs = choose_tokens(
            logits[i : i + 1], SamplingSettings.of_rows([t], [p], [k], CPU), uniforms[i : i + 1]
        )
        assert ids[0] == together[0][i]
        torch.testing.assert_close(logprobs[0], together[1][i])


def test_frequencies_follow_the_probabilities():
    rng = random.Random(0)
    ids, _ = choose([rng.random() for _ in range(20_000)])
    for token, probability in enumerate(PROBS):
        assert abs(ids.count(token) / 20_000 - probability) < 0.02  # five standard errors are .017


def test_logits_that_are_not_numbers_show_in_the_logprob():
    settings = SamplingSettings.of_rows([1.0], [1.0], [0], CPU)
    _, logprobs = choose_tokens(torch.full((1, 4), float("nan")), settings, [0.5])
    assert logprobs.isnan().all()
