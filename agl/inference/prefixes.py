"""Keys and values of sequences that have left the batch, found again by their first tokens.

The next turn of a conversation begins with the last prompt and its answer, and a group's rollouts begin with the same
prompt; what was computed for them need not be computed again. ``benchmarks/engine.py`` measures what this saves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

BLOCK = 16
"""Sequences are looked up by their whole blocks of this many tokens; less in common is not worth a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """One sequence and, for each buffer of the cache, its part of shape (H, tokens, D)."""

    token_ids: Sequence[int]
    states: Sequence[Tensor]


class PrefixCache:
    """Keeps the sequences used last; valid for one version of the weights.

    Args:
        max_bytes: of all states together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._prefixes: OrderedDict[Prefix, None] = OrderedDict()
        self._by_block: dict[int, Prefix] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def clear(self) -> None:
        """Forget everything."""
        self._num_bytes = 0
        self._prefixes.clear()
        self._by_block.clear()

    def put(self, prefix: Prefix) -> None:
        """Keep a sequence; those not used for longest make room."""
        size = _num_bytes(prefix)
        if size > self._max_bytes or len(prefix.token_ids) < BLOCK:
            return
        while self._num_bytes + size > self._max_bytes:
            self._remove(next(iter(self._prefixes)))
        self._num_bytes += size
        self._prefixes[prefix] = None
        self._by_block.update(dict.fromkeys(_block_keys(prefix.token_ids), prefix))

    def find(self, token_ids: Sequence[int]) -> tuple[Prefix, int] | None:
        """Return the sequence with the most whole blocks in common, and how many tokens that and they are."""
        found: Prefix | None = None
        for key in _block_keys(token_ids):
            candidate = self._by_block.get(key)
            if candidate is None:
                break
            found = candidate
        if found is None:
            return None
        self._prefixes.move_to_end(found)
        size = 0
        for ours, theirs in zip(token_ids, found.token_ids, strict=False):
            if ours != theirs:
                break
            size += 1
        return (found, size) if size >= BLOCK else None  # two blocks may share a key by chance

    def _remove(self, prefix: Prefix) -> None:
        del self._prefixes[prefix]
        self._num_bytes -= _num_bytes(prefix)
        for key in _block_keys(prefix.token_ids):
            if self._by_block.get(key) is prefix:
                del self._by_block[key]


def _num_bytes(prefix: Prefix) -> int:
    return sum(state.nbytes for state in prefix.states)


def _block_keys(token_ids: Sequence[int]) -> Iterator[int]:
    """Yield a key for the first block, the first two, and so on."""
    key = 0
    for end in range(BLOCK, len(token_ids) + 1, BLOCK):
        key = hash((key, *token_ids[end - BLOCK : end]))
        yield key
