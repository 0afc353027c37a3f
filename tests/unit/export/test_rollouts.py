"""what=rollouts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from recorded_runs import rollout, store_file

from agl.errors import AglError, ConfigError
from agl.export.lines import json_object, record_of
from agl.export.origin import Origin
from agl.export.rollouts import COLUMNS, RolloutExport
from agl.store.opening import store_to_read
from agl.types import Rollout

ROLLOUTS = [rollout(1), rollout(2, reward=None, status="failed"), rollout(3, reward=0.25)]


def test_the_table_has_every_field_of_a_rollout() -> None:
    assert list(COLUMNS) == [*Rollout.model_fields, "attempts"]


async def test_lines_are_the_rollouts_with_their_attempts(tmp_path: Path) -> None:
    folder = await store_file(tmp_path / "run", rollouts=ROLLOUTS)
    heard: list[int] = []
    origin = Origin(store=lambda: store_to_read(str(folder)))
    export = RolloutExport()
    assert export.is_in(folder)
    assert not export.is_in(tmp_path)
    assert export.default_path(origin) == Path("rollouts.jsonl")

    done = await export.write(origin, tmp_path / "f", on_rollout=heard.append)

    assert (done.counts, heard) == ({"rollouts": 3}, [1, 2, 3])
    lines = (tmp_path / "f").read_bytes().splitlines()
    assert [record_of(json_object(line, ""), "") for line in lines] == ROLLOUTS


async def test_a_table_has_a_row_a_rollout(tmp_path: Path) -> None:
    folder = await store_file(tmp_path / "run", rollouts=ROLLOUTS)
    origin = Origin(store=lambda: store_to_read(str(folder)))
    await RolloutExport(format="parquet", status="failed").write(origin, tmp_path / "f")
    (row,) = pyarrow.parquet.read_table(tmp_path / "f").to_pylist()
    assert list(row) == list(COLUMNS)
    assert (row["rollout_id"], row["reward"], row["num_attempts"]) == ("ro-2", None, 1)
    assert json.loads(row["error"])["cause"] == "ValueError"
    assert json.loads(row["attempts"])[0]["attempt_id"] == "at-2"


async def test_nothing_that_matches_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    folder = await store_file(tmp_path / "run", rollouts=ROLLOUTS)
    origin = Origin(store=lambda: store_to_read(str(folder)))
    with pytest.raises(AglError, match=r"nothing to export: .* has no rollout with min_reward=2\.0"):
        await RolloutExport(min_reward=2.0).write(origin, tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


async def test_a_run_without_records_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="needs the records of a run: name it with --run-dir or --store-url"
    ):
        await RolloutExport().write(Origin(), tmp_path / "f")
