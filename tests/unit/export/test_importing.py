"""What was exported comes back into a fresh store as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_runs import RUN, rollout, span, store_file

from agl.errors import AglError, ConfigError
from agl.export.importing import RECORDS_AT_ONCE, import_records
from agl.export.lines import line_of
from agl.export.origin import Origin
from agl.export.otlp import otlp_line
from agl.export.rollouts import RolloutExport
from agl.export.spans import SpanExport
from agl.store.base import LightningStore
from agl.store.opening import store_to_read
from agl.store.paging import iter_attempts, iter_rollouts, iter_runs, iter_spans
from agl.store.sqlite import SqliteStore
from agl.types import AttemptQuery, RecordedRollout, Run, Span, SpanQuery

ROLLOUTS = [
    rollout(1, metadata={"k": "v"}, resources_id="rs-1", group_id="g", mode="val", priority=3),
    rollout(2, reward=None, status="failed"),
    rollout(3, status="running", reward=None, finished_at=None),
    rollout(4, reward=0.0, attempts=(), num_attempts=0),
]
SPANS = [
    span(1, 1),
    span(1, 2, attributes={"text": "word " * 3000}),
    span(2, 5),
    span(3, 3),
    span(4, 4, attempt_id=None, sequence_id=None),
    span(9, 6, rollout_id=None, attempt_id=None, sequence_id=None),
]


async def everything(store: LightningStore) -> list[list[Any]]:
    return [
        [one async for one in iter_runs(store)],
        [one async for one in iter_rollouts(store)],
        [one async for one in iter_attempts(store, AttemptQuery())],
        sorted([one async for one in iter_spans(store, SpanQuery())], key=lambda one: one.span_id),
    ]


async def origin_of(folder: Path) -> Origin:
    run = await store_file(folder, rollouts=ROLLOUTS, spans=SPANS)
    return Origin(store=lambda: store_to_read(str(run)))


async def test_an_archive_of_spans_comes_back_with_its_runs_rollouts_and_attempts(tmp_path: Path) -> None:
    origin = await origin_of(tmp_path / "run")
    await SpanExport().write(origin, tmp_path / "spans.jsonl")
    async with origin.opened() as old, SqliteStore(":memory:") as new:
        heard: list[int] = []
        done = await import_records([tmp_path / "spans.jsonl"], new, on_record=heard.append)
        assert await everything(new) == await everything(old)
        assert dict(done.new) == {"runs": 1, "rollouts": 4, "attempts": 3, "spans": 6}
        assert heard == [11]


async def test_otlp_and_rollouts_come_back_together(tmp_path: Path) -> None:
    origin = await origin_of(tmp_path / "run")
    await SpanExport(format="otlp").write(origin, tmp_path / "otlp.jsonl")
    await RolloutExport().write(origin, tmp_path / "rollouts.jsonl")
    async with origin.opened() as old, SqliteStore(":memory:") as new:
        await import_records([tmp_path / "rollouts.jsonl", tmp_path / "otlp.jsonl"], new)
        assert (await everything(new))[1:] == (await everything(old))[1:]


async def test_the_same_import_again_changes_nothing(tmp_path: Path) -> None:
    origin = await origin_of(tmp_path / "run")
    await SpanExport().write(origin, tmp_path / "spans.jsonl")
    async with SqliteStore(":memory:") as store:
        await import_records([tmp_path / "spans.jsonl"], store)
        before = await everything(store)
        done = await import_records([tmp_path / "spans.jsonl"], store)
        assert (done.new.total(), done.read.total()) == (0, 11)
        assert await everything(store) == before


class CountingStore(SqliteStore):
    """Keeps how many records each call brought."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.sizes: list[int] = []

    async def restore(self, **records: Any) -> dict[str, int]:
        self.sizes.append(sum(map(len, records.values())))
        return await super().restore(**records)


async def test_a_long_file_is_stored_in_parts(tmp_path: Path) -> None:
    many = RECORDS_AT_ONCE + 50
    records: list[Run | RecordedRollout | Span] = [
        RUN,
        rollout(1),
        *(span(1, n + 1) for n in range(many - 2)),
    ]
    (tmp_path / "f.jsonl").write_bytes(b"".join(map(line_of, records)))
    async with CountingStore() as store:
        await import_records([tmp_path / "f.jsonl"], store)
        assert store.sizes == [RECORDS_AT_ONCE, 50]


async def test_a_json_file_is_one_otlp_document(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(otlp_line([SPANS[-1]]).replace(b"{", b"{\n"))
    async with SqliteStore(":memory:") as store:
        assert dict((await import_records([file], store)).new) == {
            "runs": 0,
            "rollouts": 0,
            "attempts": 0,
            "spans": 1,
        }


async def test_otlp_spans_that_cannot_be_kept_are_counted_by_cause(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(otlp_line([SPANS[-1], SPANS[-1].model_copy(update={"span_id": "0" * 16})]))
    async with SqliteStore(":memory:") as store:
        done = await import_records([file], store)
    assert list(done.left_out) == ["span_id is not 8 bytes that are not all zero"]


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("f.jsonl", line_of(rollout(1)) + b"{oops\n", ConfigError, r"f\.jsonl:2: not JSON"),
        ("f.jsonl", b'{"resourceSpans": 3}', ConfigError, r"f\.jsonl:1: no OTLP spans: resourceSpans"),
        (
            "f.jsonl",
            line_of(span(1, 1)),
            AglError,
            r"f\.jsonl:1: no attempt .* import the file of its rollouts",
        ),
        ("f.jsonl", b"\n\n", AglError, r"nothing to import: .*f\.jsonl has no record"),
        ("f.parquet", b"PAR1", ConfigError, r"f\.parquet: Parquet keeps less"),
        (None, b"", ConfigError, r"f\.jsonl cannot be read: No such file"),
    ],
)
async def test_a_file_at_fault_is_named(
    tmp_path: Path, name: str | None, content: bytes, kind: type[AglError], message: str
) -> None:
    if name is not None:
        (tmp_path / name).write_bytes(content)
    async with SqliteStore(":memory:") as store:
        with pytest.raises(kind, match=message):
            await import_records([tmp_path / (name or "f.jsonl")], store)


async def test_a_store_that_takes_nothing_in_says_what_does(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_bytes(line_of(RUN))

    class Other:
        location = "mongodb://m"

    with pytest.raises(ConfigError, match="mongodb://m takes in no records of others: import into a folder"):
        await import_records([tmp_path / "f.jsonl"], Other())  # type: ignore[arg-type]
