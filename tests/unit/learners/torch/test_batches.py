from dataclasses import replace

import pytest
import torch

from agl.learners.torch.batches import (
    Row,
    micro_batches,
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


def test_packed_sequences_stand_one_behind_the_other_and_begin_anew_at_position_0() -> None:
    long = row_from_sample(SAMPLE, vocab_size=10)
    assert long is not None
    rows = [row_of("r2", length=3), long, row_of("r3", length=2)]  # inputs of 2, 4 and 1 tokens
    (batch,) = micro_batches(rows, [0.1, 0.2, 0.3], max_tokens=8, device=torch.device("cpu"), packed=True)
    assert batch.indices == (1, 0, 2)
    assert batch.ids_BT.tolist() == [[5, 6, 7, 8], [1, 1, 1, 0]]
    assert batch.positions_BT is not None
    assert batch.positions_BT.tolist() == [[0, 1, 2, 3], [0, 1, 0, 1]]  # the last is padding
    assert batch.rows_N.tolist() == [1, 3, 5, 6]
    assert batch.targets_N.tolist() == [7, 9, 1, 1]
    assert batch.weights_N.tolist() == pytest.approx([0.2, 0.2, 0.1, 0.3])


def test_without_packing_no_positions_are_given() -> None:
    (batch,) = micro_batches([row_of("a"), row_of("b")], [1.0, 1.0], max_tokens=9, device=torch.device("cpu"))
    assert batch.positions_BT is None
    assert batch.pairs is None


def test_the_sides_of_a_pair_share_a_micro_batch_and_know_their_pair() -> None:
    rows = [
        replace(row_of("a", 3), pair_id="p", preferred=True),
        replace(row_of("b", 3), pair_id="q", preferred=True),
        replace(row_of("c", 2), pair_id="p"),
        replace(row_of("d", 2), pair_id="q"),
    ]
    batches = micro_batches(rows, [0.5] * 4, max_tokens=4, device=torch.device("cpu"))
    assert [batch.indices for batch in batches] == [(0, 2), (1, 3)]
    (batch,) = micro_batches(rows, [0.5] * 4, max_tokens=99, device=torch.device("cpu"))
    assert batch.pairs is not None
    assert batch.pairs.count == 2
    assert [batch.indices[at] for at in range(4)] == [0, 2, 1, 3]
    assert batch.pairs.pairs_N.tolist() == [0, 0, 1, 1]
    assert batch.pairs.preferred_N.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_a_row_stays_with_its_pair_or_else_with_its_rollout() -> None:
    assert replace(row_of("r"), pair_id="p").unit == "p"
    assert row_of("r").unit == "r"
