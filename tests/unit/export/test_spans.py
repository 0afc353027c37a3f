"""what=spans: an archive that comes back, OTLP, Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from recorded_runs import RUN, rollout, span, store_file

from agl.errors import AglError
from agl.export.origin import Origin
from agl.export.spans import COLUMNS, SpanExport
from agl.store.opening import store_to_read
from agl.types import Span

ROLLOUTS = [rollout(1), rollout(2, reward=0.0), rollout(3, run_id=None)]
SPANS = [span(1, 1), span(1, 2), span(2, 3), span(3, 4)]
STRAY = span(9, 5, rollout_id=None, attempt_id=None, sequence_id=None)


async def exported(folder: Path, **settings: Any) -> tuple[list[dict[str, Any]], Any]:
    run = await store_file(folder / "run", rollouts=ROLLOUTS, spans=[*SPANS, STRAY])
    origin = Origin(store=lambda: store_to_read(str(run)))
    done = await SpanExport(**settings).write(origin, folder / "f")
    return [json.loads(line) for line in (folder / "f").read_bytes().splitlines()], done


def test_the_table_has_every_field_of_a_span() -> None:
    assert sorted(COLUMNS) == sorted(Span.model_fields)


async def test_what_belongs_to_something_stands_behind_it_and_strays_at_the_end(tmp_path: Path) -> None:
    lines, done = await exported(tmp_path)
    ids = {"run": "run_id", "rollout": "rollout_id", "span": "span_id"}
    assert [(one["record"], one[ids[one["record"]]]) for one in lines] == [
        ("run", RUN.run_id),
        ("rollout", "ro-1"),
        ("span", SPANS[0].span_id),
        ("span", SPANS[1].span_id),
        ("rollout", "ro-2"),
        ("span", SPANS[2].span_id),
        ("rollout", "ro-3"),
        ("span", SPANS[3].span_id),
        ("span", STRAY.span_id),
    ]
    assert done.counts == {"spans": 5, "rollouts": 3, "runs": 1}


async def test_a_filter_leaves_out_strays_and_the_spans_of_others(tmp_path: Path) -> None:
    lines, done = await exported(tmp_path, min_reward=0.5, run_id="r1")
    assert [one["record"] for one in lines] == ["run", "rollout", "span", "span"]
    assert done.counts == {"spans": 2, "rollouts": 1, "runs": 1}


async def test_otlp_is_a_request_a_line(tmp_path: Path) -> None:
    lines, done = await exported(tmp_path, format="otlp")
    assert [list(line) for line in lines] == [["resourceSpans"]]
    spans = lines[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [one["spanId"] for one in spans] == [one.span_id for one in [*SPANS, STRAY]]
    assert done.counts == {"spans": 5}


async def test_spans_that_otlp_has_no_form_for_are_counted(tmp_path: Path) -> None:
    odd = span(1, 1, span_id="not hex")
    run = await store_file(tmp_path / "run", rollouts=ROLLOUTS[:1], spans=[odd, span(1, 2)])
    origin = Origin(store=lambda: store_to_read(str(run)))
    done = await SpanExport(format="otlp").write(origin, tmp_path / "f")
    assert (done.counts, dict(done.left_out)) == ({"spans": 1}, {"no_otlp_ids": 1})


async def test_a_table_has_a_row_a_span(tmp_path: Path) -> None:
    run = await store_file(tmp_path / "run", rollouts=ROLLOUTS, spans=SPANS)
    origin = Origin(store=lambda: store_to_read(str(run)))
    export = SpanExport(format="parquet")
    assert export.default_path(origin) == Path("spans.parquet")
    await export.write(origin, tmp_path / "f")
    rows = pyarrow.parquet.read_table(tmp_path / "f").to_pylist()
    assert [row["span_id"] for row in rows] == [one.span_id for one in SPANS]
    assert json.loads(rows[0]["attributes"]) == SPANS[0].attributes
    assert rows[0]["start_time_ns"] == SPANS[0].start_time_ns


async def test_a_store_without_anything_is_an_error(tmp_path: Path) -> None:
    run = await store_file(tmp_path / "run", rollouts=[], runs=[])
    origin = Origin(store=lambda: store_to_read(str(run)))
    with pytest.raises(AglError, match=r"nothing to export: .* has no rollout; see agl ls"):
        await SpanExport().write(origin, tmp_path / "f")
