"""Rows of equal shape as a file: a line of JSON each, or Parquet with the nested values as JSON text."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from agl.errors import require_extra
from agl.export.selection import refuse_unknown

TableFormat = Literal["jsonl", "parquet"]
Kind = Literal["text", "json", "float", "int", "bool", "ints", "floats"]
Columns = Mapping[str, Kind]
Row = Mapping[str, Any]
Write = Callable[[Row], None]
ROWS_AT_ONCE = 500
"""Rows that are in memory before a group of Parquet is written."""


def check_format(format: str, known: Any) -> None:  # noqa: A002 - the setting's name
    """Check that the format is known and can be written here.

    Raises:
        ConfigError: it is unknown.
        MissingExtraError: it needs a library that is not installed.
    """
    refuse_unknown("format", [format], get_args(known))
    if format == "parquet":
        require_extra("format=parquet", "parquet", "pyarrow")


def table_file(path: Path, columns: Columns, format: TableFormat) -> AbstractContextManager[Write]:  # noqa: A002
    """Give a function that writes a row to a new file."""
    return _jsonl_rows(path) if format == "jsonl" else parquet_rows(path, columns)


@contextmanager
def _jsonl_rows(path: Path) -> Generator[Write]:
    with path.open("wb") as file:

        def write(row: Row) -> None:
            file.write(orjson.dumps(row) + b"\n")

        yield write


@contextmanager
def parquet_rows(path: Path, columns: Columns) -> Generator[Write]:
    """Give a function that writes a row to a new Parquet file, some hundred at a time."""
    require_extra("format=parquet", "parquet", "pyarrow")
    from importlib import import_module

    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    types = {
        "text": arrow.string(),
        "json": arrow.string(),
        "float": arrow.float64(),
        "int": arrow.int64(),
        "bool": arrow.bool_(),
        "ints": arrow.list_(arrow.int64()),
        "floats": arrow.list_(arrow.float64()),
    }
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
    waiting: list[dict[str, Any]] = []

    with parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            writer.write_table(arrow.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

        def write(row: Row) -> None:
            waiting.append({name: _cell(row.get(name), kind) for name, kind in columns.items()})
            if len(waiting) >= ROWS_AT_ONCE:
                flush()

        yield write
        if waiting:
            flush()


def _cell(value: Any, kind: Kind) -> Any:
    return None if value is None else orjson.dumps(value).decode("utf-8") if kind == "json" else value
