"""Where a store is served: a URL and its token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


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
