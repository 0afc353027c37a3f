"""what=rollouts: rollouts with their attempts, one a line or row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl.export.lines import line_of
from agl.export.origin import Origin
from agl.export.selection import Exported, OnRollout, RolloutFilter, unheard, with_attempts
from agl.export.tables import Columns, TableFormat, check_format, parquet_rows
from agl.export.whole import appearing
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN
from agl.types import RecordedRollout

COLUMNS: Columns = {
    "rollout_id": "text",
    "run_id": "text",
    "task": "json",
    "mode": "text",
    "group_id": "text",
    "resources_id": "text",
    "config": "json",
    "metadata": "json",
    "priority": "int",
    "status": "text",
    "reward": "float",
    "reward_dimensions": "json",
    "error": "json",
    "created_at": "float",
    "started_at": "float",
    "finished_at": "float",
    "num_attempts": "int",
    "retry_at": "float",
    "attempts": "json",
}


@dataclass(frozen=True, kw_only=True)
class RolloutExport(RolloutFilter):
    """Rollouts with their attempts.

    Args:
        format: ``jsonl``, which ``agl import`` reads, or ``parquet``.
    """

    format: TableFormat = "jsonl"

    def __post_init__(self) -> None:
        RolloutFilter.__post_init__(self)
        check_format(self.format, TableFormat)

    def is_in(self, run_dir: Path) -> bool:
        """Whether the run's records are in its folder."""
        return (run_dir / FILE_IN_RUN).is_file()

    def default_path(self, origin: Origin) -> Path:
        """Return the file that is written where none is named."""
        del origin
        return Path(f"rollouts.{self.format}")

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = unheard
    ) -> Exported:
        """Write the file.

        Raises:
            ConfigError: it is there already.
            AglError: no rollout matches.
        """
        async with origin.opened() as store:
            with appearing(path, force=force) as partial:
                count = await (self._jsonl if self.format == "jsonl" else self._parquet)(
                    store, partial, on_rollout
                )
                if not count:
                    raise self.nothing_found(store)
        return Exported(path=path, counts={"rollouts": count})

    async def _jsonl(self, store: LightningStore, path: Path, on_rollout: OnRollout) -> int:
        count = 0
        with path.open("wb") as file:
            async for rollout in self.rollouts(store):
                file.write(line_of(await with_attempts(store, rollout)))
                count += 1
                on_rollout(count)
        return count

    async def _parquet(self, store: LightningStore, path: Path, on_rollout: OnRollout) -> int:
        count = 0
        with parquet_rows(path, COLUMNS) as write:
            async for rollout in self.rollouts(store):
                write(row_of(await with_attempts(store, rollout)))
                count += 1
                on_rollout(count)
        return count


def row_of(rollout: RecordedRollout) -> dict[str, Any]:
    """Return the rollout as plain values by column."""
    return rollout.model_dump(mode="json")
