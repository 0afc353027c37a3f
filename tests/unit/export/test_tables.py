"""Rows as JSONL and Parquet."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from agl.errors import ConfigError, MissingExtraError
from agl.export.tables import ROWS_AT_ONCE, Columns, TableFormat, check_format, table_file

COLUMNS: Columns = {
    "text": "text",
    "json": "json",
    "float": "float",
    "int": "int",
    "bool": "bool",
    "ints": "ints",
    "floats": "floats",
}
ROW = {
    "text": "é",
    "json": {"a": [1, None]},
    "float": 0.5,
    "int": 2**62,
    "bool": False,
    "ints": [1, 2],
    "floats": [0.5, None],
}


def test_lines_are_the_rows(tmp_path: Path) -> None:
    with table_file(tmp_path / "f", COLUMNS, "jsonl") as write:
        write(ROW)
        write({"text": None})
    assert [json.loads(line) for line in (tmp_path / "f").read_text().splitlines()] == [ROW, {"text": None}]


def test_parquet_has_typed_columns_and_groups_of_rows(tmp_path: Path) -> None:
    with table_file(tmp_path / "f", COLUMNS, "parquet") as write:
        for _ in range(ROWS_AT_ONCE + 1):
            write(ROW)
        write({})
    file = pyarrow.parquet.ParquetFile(tmp_path / "f")
    assert file.num_row_groups == 2
    rows = file.read().to_pylist()
    assert rows[0] == ROW | {"json": '{"a":[1,null]}'}
    assert rows[-1] == dict.fromkeys(COLUMNS)
    assert len(rows) == ROWS_AT_ONCE + 2


def test_without_pyarrow_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r'format=parquet needs the "parquet" extra: pip install "agl\['
    ):
        check_format("parquet", TableFormat)
    check_format("jsonl", TableFormat)


def test_an_unknown_format_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match="format=csv must be one of jsonl, parquet"):
        check_format("csv", TableFormat)
