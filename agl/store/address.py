"""Where a store is served: a URL and its token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

AWAY_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Where other processes reach a store over HTTP.

    Args:
        url: of the server.
        token: what it asks for; None where it asks for nothing.
    """

    url: str
    token: str | None = field(default=None, repr=False)


@runtime_checkable
class Addressable(Protocol):
    """A store that is served already."""

    @property
    def address(self) -> StoreAddress:
        """Where other processes reach it, too."""
        ...


@runtime_checkable
class Distant(Protocol):
    """A store behind a network."""

    @property
    def out_of_reach_at(self) -> float | None:
        """When a call last did not reach the store (``time.monotonic``); None where that has not happened."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether calls wait for the store now."""
        ...


def last_seconds(store: object, seconds: float) -> float:
    """Return how long to wait for a last answer of the store: hardly, where it is known to be away."""
    return min(seconds, AWAY_SECONDS) if isinstance(store, Distant) and store.is_away else seconds
