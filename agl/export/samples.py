"""what=samples: the token sequences that training learns from, as the adapter makes them of rollouts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl.adapters.trace import TracerTraceToTriplet
from agl.errors import AglError
from agl.evaluation.rollouts import REPLAY_OF, spans_of_rollout
from agl.export.origin import Origin
from agl.export.selection import Exported, OnRollout, RolloutFilter, unheard
from agl.export.tables import Columns, TableFormat, check_format, table_file
from agl.export.whole import appearing
from agl.store.opening import FILE_IN_RUN
from agl.types import Rollout, Trajectory

COLUMNS: Columns = {
    "rollout_id": "text",
    "run_id": "text",
    "group_id": "text",
    "mode": "text",
    "task": "json",
    "reward": "float",
    "agent": "text",
    "token_ids": "ints",
    "loss_mask": "ints",
    "logprobs": "floats",
    "temperature": "float",
    "policy_version": "int",
    "call_ends": "ints",
    "call_rewards": "floats",
    "truncated": "bool",
}


@dataclass(frozen=True, kw_only=True)
class SampleExport(RolloutFilter):
    """Token sequences of the rollouts' last attempts, by the exact ids of the record.

    Args:
        agents: names or regular expressions of the agents whose calls are taken; null is everyone.
        merge: join calls whose ids continue each other.
        max_tokens: longer sequences are left out.
        format: ``jsonl`` or ``parquet``.
    """

    agents: tuple[str, ...] | None = None
    merge: bool = True
    max_tokens: int | None = None
    format: TableFormat = "jsonl"

    def __post_init__(self) -> None:
        RolloutFilter.__post_init__(self)
        check_format(self.format, TableFormat)
        self._adapter()  # refuses what it cannot read by

    def is_in(self, run_dir: Path) -> bool:
        """Whether the run's records are in its folder."""
        return (run_dir / FILE_IN_RUN).is_file()

    def default_path(self, origin: Origin) -> Path:
        """Return the file that is written where none is named."""
        del origin
        return Path(f"samples.{self.format}")

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = unheard
    ) -> Exported:
        """Write the file.

        Raises:
            ConfigError: it is there already.
            AglError: no rollout matches, or none has exact token ids.
        """
        adapter, left_out = self._adapter(), Counter[str]()
        rollouts = samples = 0
        async with origin.opened() as store:
            with appearing(path, force=force) as partial:
                with table_file(partial, COLUMNS, self.format) as write:
                    async for rollout in self.rollouts(store):
                        rollouts += 1
                        on_rollout(rollouts)
                        if REPLAY_OF in rollout.metadata:
                            left_out["replay"] += 1
                            continue
                        adapted = adapter.adapt(await spans_of_rollout(store, rollout.rollout_id))
                        left_out += adapted.dropped
                        for trajectory in adapted.trajectories:
                            write(row_of(rollout, trajectory))
                            samples += 1
                if not rollouts:
                    raise self.nothing_found(store)
                if not samples:
                    raise AglError(_no_samples(rollouts, left_out))
        return Exported(path=path, counts={"samples": samples, "rollouts": rollouts}, left_out=left_out)

    def _adapter(self) -> TracerTraceToTriplet:
        return TracerTraceToTriplet(agents=self.agents, merge=self.merge, max_tokens=self.max_tokens)


def row_of(rollout: Rollout, trajectory: Trajectory) -> dict[str, Any]:
    """Return a sequence with what is known about its rollout, as plain values by column."""
    own = {
        name: getattr(rollout, name)
        for name in ("rollout_id", "run_id", "group_id", "mode", "task", "reward")
    }
    return own | {name: _plain(getattr(trajectory, name)) for name in COLUMNS if name not in own}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else list(value)


def _no_samples(rollouts: int, left_out: Counter[str]) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in left_out.most_common()) or "no recorded calls"
    return f"nothing to export: of {rollouts} rollouts none gives a sample ({causes}); what=sft takes their texts"
