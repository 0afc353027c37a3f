"""Which sequences go through a forward together, and which of them share a line.

Packed, several sequences stand one behind the other in a line, and their position ids begin anew with each:
transformers makes a mask of that, under which they see nothing of each other. ``can_pack`` asks a model whether it
does so; where it does not, lines hold one sequence each, in micro-batches of like length.

Shape suffixes: B lines, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

_PROBE = (7, 4)
"""Lengths of the two sequences with which a model is asked."""


def planned_lines(
    lengths: Sequence[int], units: Sequence[Sequence[int]], *, max_tokens: int, packed: bool
) -> list[list[list[int]]]:
    """Return micro-batches of lines of indices into ``lengths``, each at most ``max_tokens`` with its padding.

    Longest first, so that the largest need of memory shows at once. The members of a unit stay in one micro-batch; one
    that is larger than ``max_tokens`` has one of its own.

    Args:
        lengths: of the sequences.
        units: indices that belong together.
        max_tokens: of a micro-batch.
        packed: let a line take several sequences, up to the length of the longest (first fit).
    """
    groups: list[list[list[int]]] = []
    width = 0
    for unit in sorted(units, key=lambda unit: -max(lengths[index] for index in unit)):
        if groups:
            longer = _with(groups[-1], unit, lengths, width=width if packed else 0)
            if len(longer) * width <= max_tokens:
                groups[-1] = longer
                continue
        width = max(lengths[index] for index in unit)
        groups.append(_with([], unit, lengths, width=width if packed else 0))
    return groups


def _with(
    lines: Sequence[list[int]], unit: Sequence[int], lengths: Sequence[int], *, width: int
) -> list[list[int]]:
    """The lines with the unit's sequences added, each where it fits within ``width``, else in a line of its own."""
    longer = [list(line) for line in lines]
    taken = [sum(lengths[index] for index in line) for line in longer]
    for index in sorted(unit, key=lambda index: -lengths[index]):
        fitting = next((at for at, used in enumerate(taken) if used + lengths[index] <= width), None)
        if fitting is None:
            longer.append([index])
            taken.append(lengths[index])
        else:
            longer[fitting].append(index)
            taken[fitting] += lengths[index]
    return longer


def can_pack(model: Any, *, vocab_size: int, device: torch.device) -> bool:
    """Return whether the model gives two sequences that share a line what it gives each alone."""
    ids_T = torch.arange(sum(_PROBE), device=device) % vocab_size
    positions_T = torch.cat([torch.arange(length, device=device) for length in _PROBE])
    starts = [0, _PROBE[0], sum(_PROBE)]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            alone = [
                model(input_ids=ids_T[None, a:b], use_cache=False).logits[0] for a, b in pairwise(starts)
            ]
            shared = model(input_ids=ids_T[None], position_ids=positions_T[None], use_cache=False).logits[0]
    except TypeError:  # its forward takes no position ids
        return False
    finally:
        model.train(was_training)
    alone_TV = torch.cat(alone)
    # Float32 sums in another order differ by some 1e-6 of their size; a sequence that sees another's by far more.
    return bool(torch.allclose(shared, alone_TV, rtol=1e-3, atol=1e-3 * float(alone_TV.abs().max())))
