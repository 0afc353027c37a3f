"""what=spans: the spans of rollouts, as an archive that comes back whole, as a table, or for other tools.

``jsonl`` is the archive: before the spans of a rollout stands the line of the rollout, before the first rollout of a
run that of the run, so that ``agl import`` needs no second file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial as partially
from pathlib import Path
from typing import Any, Literal

from agl.export.lines import line_of
from agl.export.origin import Origin
from agl.export.otlp import has_otlp_ids, otlp_line
from agl.export.selection import (
    PAGE,
    Exported,
    OnRollout,
    RolloutFilter,
    spans_of,
    unheard,
    with_attempts,
)
from agl.export.tables import Columns, check_format, parquet_rows
from agl.export.whole import appearing
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN
from agl.store.paging import iter_runs, iter_spans
from agl.types import Rollout, RunQuery, Span, SpanQuery

SpanFormat = Literal["jsonl", "otlp", "parquet"]
NOT_HEX = "no_otlp_ids"
"""Why a span is in no OTLP file: its ids are no hex of the right length."""
COLUMNS: Columns = {
    "span_id": "text",
    "trace_id": "text",
    "parent_id": "text",
    "name": "text",
    "kind": "text",
    "status": "json",
    "attributes": "json",
    "events": "json",
    "links": "json",
    "resource": "json",
    "start_time_ns": "int",
    "end_time_ns": "int",
    "rollout_id": "text",
    "attempt_id": "text",
    "sequence_id": "int",
}


@dataclass(frozen=True, kw_only=True)
class SpanExport(RolloutFilter):
    """The spans of the rollouts, of all their attempts; without any filter also those that belong to no rollout.

    Args:
        format: ``jsonl``, an archive with runs and rollouts that ``agl import`` reads; ``otlp``, OpenTelemetry's JSON;
            ``parquet``, a row a span.
    """

    format: SpanFormat = "jsonl"

    def __post_init__(self) -> None:
        RolloutFilter.__post_init__(self)
        check_format(self.format, SpanFormat)

    def is_in(self, run_dir: Path) -> bool:
        """Whether the run's records are in its folder."""
        return (run_dir / FILE_IN_RUN).is_file()

    def default_path(self, origin: Origin) -> Path:
        """Return the file that is written where none is named."""
        del origin
        return Path("spans.otlp.jsonl" if self.format == "otlp" else f"spans.{self.format}")

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = unheard
    ) -> Exported:
        """Write the file.

        Raises:
            ConfigError: it is there already.
            AglError: no rollout matches.
        """
        made = {"jsonl": _archive, "otlp": _otlp_file, "parquet": _parquet_file}[self.format]
        async with origin.opened() as store:
            with appearing(path, force=force) as partial, made(partial) as out:
                rollouts = 0
                async for rollout in self.rollouts(store):
                    await out.begin(store, rollout)
                    async for span in spans_of(store, rollout.rollout_id):
                        out.add(span)
                    rollouts += 1
                    on_rollout(rollouts)
                if not self.words():
                    async for span in _strays(store, already=out.counts["spans"] + out.left_out.total()):
                        out.add(span)
                if not rollouts and not out.counts["spans"]:
                    raise self.nothing_found(store)
        counts = {name: out.counts[name] for name in ("spans", "rollouts", "runs") if out.counts[name]}
        return Exported(path=path, counts=counts or {"spans": 0}, left_out=out.left_out)


async def _strays(store: LightningStore, *, already: int) -> AsyncIterator[Span]:
    """The spans that belong to no rollout; only looked for where there are more than those of rollouts."""
    if int((await store.statistics())["spans"]) <= already:
        return
    async for span in iter_spans(store, SpanQuery(limit=PAGE)):
        if span.rollout_id is None:
            yield span


async def _nothing_before(store: LightningStore, rollout: Rollout) -> None:
    del store, rollout


@dataclass(slots=True, kw_only=True)
class _Out:
    """A file that is being written: what stands before a rollout's spans, and a span."""

    add: Callable[[Span], None]
    begin: Callable[[LightningStore, Rollout], Any] = _nothing_before
    counts: Counter[str] = field(default_factory=Counter[str])
    left_out: Counter[str] = field(default_factory=Counter[str])


@contextmanager
def _archive(path: Path) -> Generator[_Out]:
    counts: Counter[str] = Counter()
    runs: set[str] = set()
    with path.open("wb") as file:

        def add(span: Span) -> None:
            file.write(line_of(span))
            counts["spans"] += 1

        async def begin(store: LightningStore, rollout: Rollout) -> None:
            if rollout.run_id is not None and rollout.run_id not in runs:
                runs.add(rollout.run_id)
                async for run in iter_runs(store, RunQuery(limit=PAGE)):
                    if run.run_id == rollout.run_id:
                        file.write(line_of(run))
                        counts["runs"] += 1
                        break
            file.write(line_of(await with_attempts(store, rollout)))
            counts["rollouts"] += 1

        yield _Out(add=add, begin=begin, counts=counts)


@contextmanager
def _otlp_file(path: Path) -> Generator[_Out]:
    waiting: list[Span] = []
    counts, left_out = Counter[str](), Counter[str]()
    with path.open("wb") as file:

        def flush() -> None:
            if waiting:
                file.write(otlp_line(waiting))
                waiting.clear()

        def add(span: Span) -> None:
            if not has_otlp_ids(span):
                left_out[NOT_HEX] += 1
                return
            waiting.append(span)
            counts["spans"] += 1
            if len(waiting) >= PAGE:
                flush()

        yield _Out(add=add, counts=counts, left_out=left_out)
        flush()


@contextmanager
def _parquet_file(path: Path) -> Generator[_Out]:
    counts: Counter[str] = Counter()
    with parquet_rows(path, COLUMNS) as write:
        yield _Out(add=partially(_add_row, write, counts), counts=counts)


def _add_row(write: Callable[[dict[str, Any]], None], counts: Counter[str], span: Span) -> None:
    write(span.model_dump(mode="json"))
    counts["spans"] += 1
