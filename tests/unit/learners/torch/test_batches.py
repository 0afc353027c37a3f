import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agl.learners.torch.batches import (
    Row,
    micro_batches,
    minibatches,
    planned_micro_batches,
    row_from_sample,
)
from agl.types.sample import TrainingSample

SAMPLE = TrainingSample(
    rollout_id="r1",
    token_ids=[5, 6, 7, 8, 9, 4],
    loss_mask=[0, 0, 1, 0, 1, 0],
    old_logprobs=[0.0, 0.0, -0.5, 0.0, -1.5, 0.0],
    advantages=[9.0, 9.0, 1.0, 9.0, 2.0, 9.0],
    temperature=0.5,
    returns=[0.0, 0.0, 3.0, 0.0, 4.0, 0.0],
)


def row_of(rollout_id: str, length: int = 3) -> Row:
    row = row_from_sample(
        TrainingSample(
            rollout_id=rollout_id,
            token_ids=[1] * length,
            loss_mask=[0] * (length - 1) + [1],
            old_logprobs=[0.0] * length,
            advantages=[0.0] * length,
        ),
        vocab_size=10,
    )
    assert row is not None
    return row


def test_a_row_keeps_what_is_sampled_and_the_input_before_it() -> None:
    row = row_from_sample(SAMPLE, vocab_size=10)
    assert row is not None
    assert row.ids_T.tolist() == [
        5,
        6,
        7,
        8,
    ]  # the last sampled token is at 4; it and what follows are no input
    assert row.positions_N.tolist() == [2, 4]
    assert row.targets_N.tolist() == [7, 9]
    assert row.old_logprobs_N is not None
    assert row.old_logprobs_N.tolist() == [-0.5, -1.5]
    assert row.advantages_N is not None
    assert row.advantages_N.tolist() == [1.0, 2.0]
    assert row.returns_N is not None
    assert row.returns_N.tolist() == [3.0, 4.0]
    assert row.old_values_N is None


def test_a_sequence_without_sampled_tokens_is_no_row() -> None:
    assert row_from_sample(replace(SAMPLE, loss_mask=[0] * 6), vocab_size=10) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_mask": [0, 1]}, "6 token_ids, 2 loss_mask"),
        ({"loss_mask": [1, 0, 0, 0, 0, 0]}, "first token"),
        ({"temperature": 0.0}, "temperature"),
        ({"token_ids": [5, 6, 7, 8, 9, 10]}, "vocabulary of 10"),
        ({"token_ids": [-1, 6, 7, 8, 9, 4]}, "vocabulary of 10"),
        ({"advantages": [1.0]}, "1 advantages for 6 token_ids"),
        ({"returns": [1.0]}, "1 returns for 6 token_ids"),
    ],
)
def test_a_sample_that_contradicts_itself_is_refused_by_rollout(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=f"rollout r1: .*{message}"):
        row_from_sample(replace(SAMPLE, **change), vocab_size=10)  # type: ignore[arg-type]


def test_minibatches_are_whole_rollouts_spread_evenly() -> None:
    rows = [row_of(f"r{index // 2}") for index in range(20)]  # 10 rollouts of two sequences
    batches = minibatches(rows, 4, random.Random(0))
    assert [len({row.rollout_id for row in batch}) for batch in batches] == [3, 3, 4]
    assert [len(batch) for batch in batches] == [6, 6, 8]
    assert sorted(id(row) for batch in batches for row in batch) == sorted(id(row) for row in rows)


def test_without_a_size_all_rollouts_are_one_minibatch() -> None:
    rows = [row_of("a"), row_of("b")]
    assert [len(batch) for batch in minibatches(rows, None, random.Random(0))] == [2]


def test_the_order_of_rollouts_is_the_seeds() -> None:
    rows = [row_of(f"r{index}") for index in range(10)]

    def order(seed: int) -> list[str]:
        return [row.rollout_id for batch in minibatches(rows, 2, random.Random(seed)) for row in batch]

    assert order(1) == order(1) != order(2)


def test_micro_batches_are_filled_with_sequences_of_like_length() -> None:
    assert planned_micro_batches([3, 10, 2, 9, 1], max_tokens=20) == [[1, 3], [0, 2, 4]]


def test_a_sequence_longer_than_the_bound_goes_alone() -> None:
    assert planned_micro_batches([30, 2, 2], max_tokens=4) == [[0], [1, 2]]


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(1, 100))
def test_every_sequence_is_planned_once_within_the_bound(lengths: list[int], max_tokens: int) -> None:
    groups = planned_micro_batches(lengths, max_tokens)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[index] for index in group) <= max_tokens


def test_rows_point_at_the_input_before_each_sampled_token() -> None:
    long = row_from_sample(SAMPLE, vocab_size=10)
    short = row_of("r2", length=3)
    assert long is not None
    (batch,) = micro_batches([short, long], [0.25, 0.5], max_tokens=100, device=torch.device("cpu"))
    assert batch.indices == (1, 0)
    assert batch.ids_BT.tolist() == [[5, 6, 7, 8], [1, 1, 0, 0]]
    assert batch.rows_N.tolist() == [1, 3, 5]
    assert batch.targets_N.tolist() == [7, 9, 1]
    assert batch.weights_N.tolist() == [0.5, 0.5, 0.25]
    assert batch.temperature_N is not None
    assert batch.temperature_N.tolist() == [0.5, 0.5, 1.0]


def test_temperature_one_for_all_is_no_temperature() -> None:
    (batch,) = micro_batches([row_of("a")], [1.0], max_tokens=100, device=torch.device("cpu"))
    assert batch.temperature_N is None
