"""agl import: the records of JSONL files, ours or OTLP's, into a store, as they were where they were exported.

Files are read a line at a time and stored some hundred records at a time. A record that the store knows by its id stays
as it is there, so that an import that was cut short is made complete by the same command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agl.errors import AglError, ConfigError, NotFoundError
from agl.export.lines import Recorded, json_object, record_of
from agl.store.base import LightningStore
from agl.store.otlp.json_body import read_json
from agl.store.otlp.reading import LargeRequestError, MalformedRequestError, SpanReading
from agl.store.restoring import Restores
from agl.types import RecordedRollout, Run, Span

RECORDS_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024
"""Of the lines whose records are stored in one call."""


@dataclass(slots=True, kw_only=True)
class Imported:
    """What came in.

    Args:
        read: how many records of each kind the files have.
        new: how many of them the store did not know.
        left_out: spans that cannot be kept, by cause.
    """

    read: Counter[str] = field(default_factory=Counter[str])
    new: Counter[str] = field(default_factory=Counter[str])
    left_out: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Records that are stored in one call, and where the first of them stands."""

    where: str = ""
    num_bytes: int = 0
    runs: list[Run] = field(default_factory=list[Run])
    rollouts: list[RecordedRollout] = field(default_factory=list[RecordedRollout])
    spans: list[Span] = field(default_factory=list[Span])

    @property
    def is_full(self) -> bool:
        return self.size >= RECORDS_AT_ONCE or self.num_bytes >= BYTES_AT_ONCE

    @property
    def size(self) -> int:
        return len(self.runs) + len(self.rollouts) + len(self.spans)

    def add(self, record: Recorded) -> None:
        if isinstance(record, Span):
            self.spans.append(record)
        elif isinstance(record, RecordedRollout):
            self.rollouts.append(record)
        else:
            self.runs.append(record)


async def import_records(
    files: Sequence[Path], store: LightningStore, *, on_record: Callable[[int], None] = lambda _read: None
) -> Imported:
    """Read the files in their order into the store, which is open.

    Args:
        files: of ``agl export what=rollouts|spans`` or in OTLP's JSON; rollouts before their spans.
        store: that takes the records in.
        on_record: hears how many records are stored.

    Raises:
        ConfigError: a file at fault, naming its line, or a store that takes no records in.
        AglError: spans of a rollout that neither the store nor a file before has.
    """
    if not isinstance(store, Restores):
        raise ConfigError(
            f"the store at {store.location} takes in no records of others: import into a folder (--run-dir), and serve"
            " that with agl store store.path=FILE"
        )
    done = Imported()
    async for batch in _batches(files, done):
        try:
            new = await store.restore(runs=batch.runs, rollouts=batch.rollouts, spans=batch.spans)
        except NotFoundError as error:
            raise AglError(
                f"{batch.where}: {error}: import the file of its rollouts first (agl export what=rollouts), in the"
                " same command"
            ) from error
        done.new.update(new)
        done.read.update(
            {"runs": len(batch.runs), "rollouts": len(batch.rollouts), "spans": len(batch.spans)}
        )
        on_record(done.read.total())
    if not done.read.total():
        raise AglError(f"nothing to import: {', '.join(map(str, files))} has no record that can be kept")
    return done


async def _batches(files: Sequence[Path], done: Imported) -> AsyncIterator[_Batch]:
    batch = _Batch()
    for file in files:
        for where, line in _lines(file):
            batch.where = batch.where or where
            batch.num_bytes += len(line)
            for record in _records(line, where, done):
                batch.add(record)
                if batch.is_full:
                    yield batch
                    batch = _Batch(where=where)
    if batch.size:
        yield batch


def _records(line: bytes, where: str, done: Imported) -> Iterator[Recorded]:
    """The records of a line: one of ours, or the spans of an OTLP request."""
    value = json_object(line, where)
    if "resourceSpans" not in value:
        yield record_of(value, where)
        return
    reading = SpanReading()
    try:
        read_json(line, reading)
    except (MalformedRequestError, LargeRequestError) as error:
        raise ConfigError(f"{where}: no OTLP spans: {error}") from error
    done.left_out.update(reading.rejected)
    yield from reading.spans


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file with their places; a ``.json`` file is one."""
    if file.suffix == ".parquet":
        raise ConfigError(
            f"{file}: Parquet keeps less than was recorded: import what format=jsonl or otlp wrote"
        )
    try:
        if file.suffix == ".json":
            yield str(file), file.read_bytes()
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}:{number}", line
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
