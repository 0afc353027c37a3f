"""How forwards run: device, precision, micro-batches, and when to give up.

Shape suffixes: N sampled tokens of a micro-batch; B lines, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agl.errors import RunStoppedError
from agl.learners.torch.batches import MicroBatch, Row, micro_batches
from agl.learners.torch.models import hidden_and_logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How forwards run.

    Args:
        device: where models and batches are.
        micro_batch_tokens: most tokens, padding included, of one forward.
        bfloat16: matrix products in bfloat16 (autocast); losses stay in float32.
        stopped: whether to give up at the next micro-batch, because the learner is being closed.
        packed: several sequences share a line of the batch, and see nothing of each other.
    """

    device: torch.device
    micro_batch_tokens: int
    bfloat16: bool
    stopped: Callable[[], bool]
    packed: bool = False

    def forward(self, model: Any, batch: MicroBatch, *, logits: bool = True) -> tuple[Tensor, Tensor]:
        """Return ``hidden_and_logits`` of the batch."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            return hidden_and_logits(
                model, batch.ids_BT, batch.rows_N, positions_BT=batch.positions_BT, logits=logits
            )

    def micro_batches(self, rows: Sequence[Row], weights: Sequence[float]) -> list[MicroBatch]:
        """Return the rows as micro-batches on the device; those of a pair stay together."""
        return micro_batches(
            rows, weights, max_tokens=self.micro_batch_tokens, device=self.device, packed=self.packed
        )

    def check_stopped(self) -> None:
        """Raise RunStoppedError when the learner is being closed."""
        if self.stopped():
            raise RunStoppedError("the learner was closed in the middle of its work")
