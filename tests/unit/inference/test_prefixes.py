from __future__ import annotations

import torch

from agl.inference.prefixes import BLOCK, Prefix, PrefixCache

BYTES_PER_TOKEN = 8


def prefix(token_ids: list[int]) -> Prefix:
    return Prefix(token_ids, [torch.zeros(1, len(token_ids), 1), torch.zeros(1, len(token_ids), 1)])


def test_the_longest_common_beginning_is_found():
    cache = PrefixCache(10**6)
    short, long = prefix(list(range(20))), prefix([*range(40), 7, 7])
    cache.put(long)
    cache.put(short)
    assert cache.find(list(range(60))) == (long, 40)
    assert cache.find([*range(18), 99]) == (short, 18)
    assert cache.find(list(range(17))) == (short, 17)


def test_less_than_a_block_in_common_is_nothing():
    cache = PrefixCache(10**6)
    cache.put(prefix(list(range(40))))
    assert cache.find([*range(BLOCK - 1), 99, 98]) is None
    assert cache.find([]) is None
    cache.put(prefix([5] * (BLOCK - 1)))
    assert cache.find([5] * BLOCK) is None


def test_what_was_not_used_for_longest_makes_room():
    cache = PrefixCache(3 * 20 * BYTES_PER_TOKEN)
    sequences = [[start] * 20 for start in range(4)]
    for sequence in sequences[:3]:
        cache.put(prefix(sequence))
    assert cache.find(sequences[0]) is not None
    cache.put(prefix(sequences[3]))
    assert [cache.find(sequence) is not None for sequence in sequences] == [True, False, True, True]
    assert len(cache) == 3


def test_a_newer_sequence_survives_the_removal_of_an_older_twin():
    cache = PrefixCache(2 * 20 * BYTES_PER_TOKEN)
    newer = prefix([1] * 20)
    cache.put(prefix([1] * 20))
    cache.put(newer)
    cache.put(prefix([2] * 20))
    found = cache.find([1] * 20)
    assert found is not None
    assert found[0] is newer


def test_what_is_larger_than_the_cache_is_not_kept():
    cache = PrefixCache(20 * BYTES_PER_TOKEN)
    cache.put(prefix([1] * 21))
    assert len(cache) == 0


def test_nothing_is_left_after_clearing():
    cache = PrefixCache(10**6)
    cache.put(prefix([1] * 20))
    cache.clear()
    assert cache.find([1] * 20) is None
    assert len(cache) == 0
