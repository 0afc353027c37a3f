"""Origin: where what is exported comes from: a run's folder, the store with its records, its learner; and the protocol.

A store that is served has no folder here; a run's folder may have its records elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from agl.errors import ConfigError
from agl.export.selection import Exported, OnRollout
from agl.learners.base import Learner
from agl.store.base import LightningStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where what is exported comes from.

    Args:
        store: makes the store with the records, not open; None where only the folder is known.
        run_dir: the run's folder; None where the store is served elsewhere.
        learner: builds the learner of the run in ``run_dir``, not open; for weights that are only in a checkpoint.
    """

    store: Callable[[], LightningStore] | None = None
    run_dir: Path | None = None
    learner: Callable[[], Learner] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[LightningStore]:
        """Open the store while the block runs.

        Raises:
            ConfigError: there are no records here.
        """
        if self.store is None:
            raise ConfigError("this needs the records of a run: name it with --run-dir or --store-url")
        async with self.store() as store:
            yield store


@runtime_checkable
class Export(Protocol):
    """One kind of export; its constructor is its settings."""

    def is_in(self, run_dir: Path) -> bool:
        """Whether a run's folder has such results; where nobody names a run, it is the newest that has."""
        ...

    def default_path(self, origin: Origin) -> Path:
        """Return what is written where nothing is named."""
        ...

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = ...
    ) -> Exported:
        """Write it, whole or not at all.

        Raises:
            ConfigError: it is there already and ``force`` is not given, or a setting does not fit the origin.
            AglError: there is nothing to export, or it cannot be written.
        """
        ...
