from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from agl.errors import RunStoppedError
from agl.learners.torch.batches import Row
from agl.learners.torch.compute import Compute

COMPUTE = Compute(device=torch.device("cpu"), micro_batch_tokens=12, bfloat16=False, stopped=lambda: False)


def row(ids: list[int]) -> Row:
    return Row(
        rollout_id="r",
        ids_T=torch.tensor(ids),
        positions_N=torch.tensor([len(ids)]),
        targets_N=torch.tensor([3]),
        temperature=1.0,
    )


ROWS = [row([1, 2, 3, 4, 5, 6]), row([7, 8]), row([9, 10, 11])]


@pytest.mark.parametrize("packed", [False, True])
def test_a_forward_looks_at_the_last_input_of_each_sequence_alone(plain_model: Any, packed: bool) -> None:
    compute = replace(COMPUTE, packed=packed)
    (batch,) = (
        compute.micro_batches(ROWS, [1.0] * 3) if packed else compute.micro_batches(ROWS[1:], [1.0] * 2)
    )
    chosen = ROWS if packed else ROWS[1:]
    with torch.no_grad():
        _, logits = compute.forward(plain_model, batch)
        alone = [plain_model(chosen[index].ids_T[None]).logits[0, -1] for index in batch.indices]
    torch.testing.assert_close(logits, torch.stack(alone), rtol=1e-5, atol=1e-6)


def test_closing_the_learner_ends_the_work_at_the_next_micro_batch() -> None:
    COMPUTE.check_stopped()
    with pytest.raises(RunStoppedError, match="closed"):
        replace(COMPUTE, stopped=lambda: True).check_stopped()
