"""Which sequences share a forward, and a line of it; and whether a model keeps them apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agl.learners.torch.packing import can_pack, planned_lines

CPU = torch.device("cpu")


def alone(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """The plan of sequences that do not share lines."""
    units = [[index] for index in range(len(lengths))]
    plan = planned_lines(lengths, units, max_tokens=max_tokens, packed=False)
    assert all(len(line) == 1 for lines in plan for line in lines)
    return [[line[0] for line in lines] for lines in plan]


def test_micro_batches_are_filled_with_sequences_of_like_length() -> None:
    assert alone([3, 10, 2, 9, 1], max_tokens=20) == [[1, 3], [0, 2, 4]]


def test_a_sequence_longer_than_the_bound_goes_alone() -> None:
    assert alone([30, 2, 2], max_tokens=4) == [[0], [1, 2]]


def test_shorter_sequences_share_lines_as_long_as_the_longest() -> None:
    plan = planned_lines([3, 10, 2, 9, 1], [[0], [1], [2], [3], [4]], max_tokens=30, packed=True)
    assert plan == [[[1], [3, 4], [0, 2]]]


def test_a_pair_stays_in_one_micro_batch() -> None:
    plan = planned_lines([4, 4, 4, 4], [[0, 3], [1, 2]], max_tokens=9, packed=False)
    assert plan == [[[0], [3]], [[1], [2]]]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 100), st.booleans())
def test_every_sequence_is_planned_once_within_the_bound(
    lengths: list[int], max_tokens: int, packed: bool
) -> None:
    units = [[index] for index in range(len(lengths))]
    plan = planned_lines(lengths, units, max_tokens=max_tokens, packed=packed)
    assert Counter(index for lines in plan for line in lines for index in line) == Counter(
        range(len(lengths))
    )
    for lines in plan:
        width = max(sum(lengths[index] for index in line) for line in lines)
        assert len(lines) * width <= max_tokens or sum(map(len, lines)) == 1
        assert width == max(lengths[index] for line in lines for index in line)


def test_a_llama_can_pack(plain_model: Any) -> None:
    assert can_pack(plain_model, vocab_size=20, device=CPU)
    assert not plain_model.training


class CarriesOver(torch.nn.Module):
    """A model with a state that runs on over the border of two sequences."""

    def forward(self, input_ids: Any, position_ids: Any = None, *, use_cache: bool) -> Any:
        logits = torch.nn.functional.one_hot(input_ids, 20).float().cumsum(1)
        return type("Output", (), {"logits": logits})


class TakesNoPositions(CarriesOver):
    """One whose forward has no position ids."""

    def forward(self, input_ids: Any, *, use_cache: bool) -> Any:  # type: ignore[override]
        return super().forward(input_ids, use_cache=use_cache)


@pytest.mark.parametrize("model", [CarriesOver(), TakesNoPositions()], ids=["state", "no positions"])
def test_a_model_whose_sequences_would_see_each_other_cannot(model: torch.nn.Module) -> None:
    assert not can_pack(model, vocab_size=20, device=CPU)
