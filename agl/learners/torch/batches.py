"""Samples to tensors: rollouts into minibatches, minibatches into micro-batches of like length.

Lines are padded on the right and run without an attention mask: under causal attention no real token sees the padding
behind it. A line holds one sequence, or several (``packing``). Only positions whose next token was sampled are looked
at afterwards (``MicroBatch.rows_N``).

Shape suffixes: B lines, T positions, N sampled tokens of all sequences one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agl.learners.torch.packing import planned_lines
from agl.types.sample import TrainingSample, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence as tensors on the CPU; the ``_N`` are of its own sampled tokens only.

    Args:
        rollout_id: whose sequence it is.
        ids_T: the input: every token before the last sampled one; what follows changes no logprob asked for.
        positions_N: where each sampled token stands in the whole sequence; its input is at position - 1.
        targets_N: the sampled tokens.
        temperature: under which they were sampled.
        weight: multiplies the sequence's loss.
        pair_id: of the two rollouts that are compared, None outside of pairs.
        preferred: whether it belongs to the better one of its pair.
    """

    rollout_id: str
    ids_T: Tensor
    positions_N: Tensor
    targets_N: Tensor
    temperature: float
    weight: float = 1.0
    pair_id: str | None = None
    preferred: bool = False
    old_logprobs_N: Tensor | None = None
    advantages_N: Tensor | None = None
    returns_N: Tensor | None = None
    old_values_N: Tensor | None = None
    reference_logprobs_N: Tensor | None = None

    @property
    def num_sampled(self) -> int:
        """How many tokens of it were sampled."""
        return len(self.targets_N)

    @property
    def unit(self) -> str:
        """The pair or rollout whose sequences stay in one minibatch."""
        return self.rollout_id if self.pair_id is None else self.pair_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Which of a micro-batch's pairs each sampled token is of, and whether of its preferred side: 1.0, or 0.0."""

    count: int
    pairs_N: Tensor
    preferred_N: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one forward takes: padded inputs, and where in the flat batch each sampled token's input is.

    Args:
        indices: which of the rows given these are, in the order of the batch.
        positions_BT: of each input in its own sequence; None where every line is one sequence.
        rows_N: index into the B * T input positions.
        temperature_N: None when all are 1, which spares a pass over the logits.
        weights_N: of ``steps.token_weights``, or of each token's pair.
        pairs: None outside of pairs.
    """

    indices: tuple[int, ...]
    ids_BT: Tensor
    positions_BT: Tensor | None
    rows_N: Tensor
    targets_N: Tensor
    temperature_N: Tensor | None
    weights_N: Tensor
    old_logprobs_N: Tensor | None
    advantages_N: Tensor | None
    returns_N: Tensor | None
    old_values_N: Tensor | None
    reference_logprobs_N: Tensor | None
    pairs: Pairs | None


def row_from_trajectory(sequence: Trajectory | TrainingSample, *, vocab_size: int) -> Row | None:
    """Return the sequence's inputs and targets, or None when no token of it was sampled.

    Raises:
        ValueError: lengths differ, an id is outside the vocabulary, the first token counts as sampled, or the
            temperature is 0.
    """
    where = f"rollout {sequence.rollout_id}"
    if len(sequence.loss_mask) != len(sequence.token_ids):
        raise ValueError(f"{where}: {len(sequence.token_ids)} token_ids, {len(sequence.loss_mask)} loss_mask")
    mask_T = torch.tensor(sequence.loss_mask, dtype=torch.bool)
    positions_N = mask_T.nonzero()[:, 0]
    if not len(positions_N):
        return None
    if positions_N[0] == 0:
        raise ValueError(f"{where}: the first token cannot be a sampled one, nothing stands before it")
    if sequence.temperature <= 0:
        raise ValueError(
            f"{where}: temperature {sequence.temperature} has no logprobs; sample above 0 to train"
        )
    ids_T = torch.tensor(sequence.token_ids, dtype=torch.long)
    if ids_T.min() < 0 or ids_T.max() >= vocab_size:
        raise ValueError(f"{where}: a token id is not below the model's vocabulary of {vocab_size}")
    return Row(
        rollout_id=sequence.rollout_id,
        ids_T=ids_T[: int(positions_N[-1])],
        positions_N=positions_N,
        targets_N=ids_T[positions_N],
        temperature=sequence.temperature,
        weight=sequence.weight if isinstance(sequence, TrainingSample) else 1.0,
    )


def row_from_sample(sample: TrainingSample, *, vocab_size: int) -> Row | None:
    """Return the sample as tensors, or None when no token of it was sampled.

    Raises:
        ValueError: as ``row_from_trajectory``, or a per-token list is not as long as the sequence.
    """
    row = row_from_trajectory(sample, vocab_size=vocab_size)
    if row is None:
        return None

    def column(name: str, values: Sequence[float] | None) -> Tensor | None:
        if values is None:
            return None
        if len(values) != len(sample.token_ids):
            raise ValueError(
                f"rollout {sample.rollout_id}: {len(values)} {name} for {len(sample.token_ids)} token_ids"
            )
        return torch.tensor(values, dtype=torch.float32)[row.positions_N]

    return Row(
        rollout_id=row.rollout_id,
        ids_T=row.ids_T,
        positions_N=row.positions_N,
        targets_N=row.targets_N,
        temperature=row.temperature,
        weight=row.weight,
        pair_id=sample.pair_id,
        preferred=sample.preferred,
        old_logprobs_N=column("old_logprobs", sample.old_logprobs),
        advantages_N=column("advantages", sample.advantages),
        returns_N=column("returns", sample.returns),
        old_values_N=column("old_values", sample.old_values),
    )


def micro_batches(
    rows: Sequence[Row],
    weights: Sequence[float],
    *,
    max_tokens: int,
    device: torch.device,
    packed: bool = False,
) -> list[MicroBatch]:
    """Return the rows as micro-batches on the device, those of a pair together.

    Args:
        rows: of one minibatch.
        weights: one per row, of each of its tokens.
        max_tokens: of a micro-batch, padding included; a longer sequence, or pair, is one of its own.
        device: where the batches go.
        packed: let several sequences share a line.
    """
    units: dict[object, list[int]] = {}
    for index, row in enumerate(rows):
        units.setdefault(index if row.pair_id is None else row.pair_id, []).append(index)
    lengths = [len(row.ids_T) for row in rows]
    plan = planned_lines(lengths, [*units.values()], max_tokens=max_tokens, packed=packed)
    return [_micro_batch(lines, rows, weights, device) for lines in plan]


def _micro_batch(
    lines: Sequence[Sequence[int]], rows: Sequence[Row], weights: Sequence[float], device: torch.device
) -> MicroBatch:
    indices = [index for line in lines for index in line]
    chosen = [rows[index] for index in indices]
    ids_BT, positions_BT, starts = _laid_out(lines, rows)
    temperatures = [row.temperature for row in chosen]
    counts = torch.tensor([row.num_sampled for row in chosen])

    def per_token(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(counts).to(device)

    def joined(columns: Sequence[Tensor | None]) -> Tensor | None:
        present = [column for column in columns if column is not None]
        return torch.cat(present).to(device) if len(present) == len(columns) else None

    numbers = {pair_id: number for number, pair_id in enumerate(dict.fromkeys(row.pair_id for row in chosen))}
    return MicroBatch(
        indices=tuple(indices),
        ids_BT=ids_BT.to(device),
        positions_BT=positions_BT.to(device) if len(lines) < len(indices) else None,
        rows_N=torch.cat([row.positions_N - 1 + start for row, start in zip(chosen, starts, strict=True)]).to(
            device
        ),
        targets_N=torch.cat([row.targets_N for row in chosen]).to(device),
        temperature_N=None if set(temperatures) == {1.0} else per_token(temperatures),
        weights_N=per_token([weights[index] for index in indices]),
        old_logprobs_N=joined([row.old_logprobs_N for row in chosen]),
        advantages_N=joined([row.advantages_N for row in chosen]),
        returns_N=joined([row.returns_N for row in chosen]),
        old_values_N=joined([row.old_values_N for row in chosen]),
        reference_logprobs_N=joined([row.reference_logprobs_N for row in chosen]),
        pairs=None
        if None in numbers
        else Pairs(
            count=len(numbers),
            pairs_N=per_token([numbers[row.pair_id] for row in chosen]).long(),
            preferred_N=per_token([float(row.preferred) for row in chosen]),
        ),
    )


def _laid_out(lines: Sequence[Sequence[int]], rows: Sequence[Row]) -> tuple[Tensor, Tensor, list[int]]:
    """The lines' ids and positions, padded, and where in the flat batch each sequence begins."""
    width = max(sum(len(rows[index].ids_T) for index in line) for line in lines)
    ids_BT = torch.zeros((len(lines), width), dtype=torch.long)
    positions_BT = torch.arange(width).repeat(len(lines), 1)
    starts: list[int] = []
    for number, line in enumerate(lines):
        at = 0
        for index in line:
            ids_T = rows[index].ids_T
            end = at + len(ids_T)
            ids_BT[number, at:end] = ids_T
            positions_BT[number, at:] = torch.arange(width - at)  # what stays behind the last one is padding
            starts.append(number * width + at)
            at = end
    return ids_BT, positions_BT, starts
