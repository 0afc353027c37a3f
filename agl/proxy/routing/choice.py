"""Which of an endpoint's equal servers gets a call. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

MAX_SEATS = 65_536
"""Rollouts whose server is remembered; one that is pushed out is balanced anew."""


class Seats:
    """Which server each rollout stays with: its prompt prefixes are in that server's cache."""

    def __init__(self, *, max_seats: int = MAX_SEATS) -> None:
        self._max_seats = max_seats
        self._seats: OrderedDict[str, int] = OrderedDict()

    def choose(
        self, rollout_id: str, loads: Sequence[int], *, well: Collection[int], names: Sequence[str]
    ) -> int:
        """Return the index of the server for a rollout's call.

        Its own server while that is ``well``; else the well one with the fewest calls under way, of equals the first
        by rendezvous hashing, so that proxies beside each other choose alike.

        Args:
            rollout_id: whose call it is; empty for nobody's, which gets no seat.
            loads: calls under way by server.
            well: indices to choose from; not empty.
            names: of the servers.
        """
        seat = self._seats.get(rollout_id)
        if seat is not None and seat in well:
            self._seats.move_to_end(rollout_id)
            return seat
        chosen = min(well, key=lambda index: (loads[index], _weight(rollout_id, names[index])))
        if rollout_id:
            self._seats[rollout_id] = chosen
            self._seats.move_to_end(rollout_id)
            if len(self._seats) > self._max_seats:
                self._seats.popitem(last=False)
        return chosen


def _weight(rollout_id: str, name: str) -> bytes:
    return blake2b(f"{rollout_id}\0{name}".encode(), digest_size=8).digest()


def candidates(
    items: Sequence[T], *, tried: Collection[int], is_well: Callable[[T], bool], is_due: Callable[[T], bool]
) -> set[int]:
    """Return the indices to choose from: the first kind that there is of well and untried, well, rested, untried, any.

    A sick server is better than none: the client waits anyway.
    """
    every = set(range(len(items)))
    untried = every - set(tried)
    well = {index for index in every if is_well(items[index])}
    rested = {index for index in every if is_due(items[index])}
    return well & untried or well or rested & untried or untried or every
