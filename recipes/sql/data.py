"""Tasks: generated questions with fixed held-out parts, or the Spider data set from its folder.

Whether a gold query may be trained on is decided once and for all by a hash of (schema, gold SQL), not by a
seed: the starter policy's demonstrations and every training split lie on one side, validation and test
questions on the others.
"""

import hashlib
import json
import random
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, Literal

from .execution import GENERATED, is_ordered
from .questions import Question, pool
from .schemas import HELD_OUT_SCHEMA, TRAINING_SCHEMAS, Schema, build

Task = dict[str, Any]
Split = Literal["train", "val", "test", "schema"]

QUESTIONS_PER_SCHEMA = 1500
DEFAULT_LIMITS = {"train": 4000, "val": 300, "test": 400, "schema": 200}


def part(schema: str, gold_sql: str) -> Literal["train", "val", "test"]:
    """The part a gold query belongs to, for every seed: 80 % train, 10 % val, 10 % test."""
    bucket = int(hashlib.sha256(f"{schema}\n{gold_sql}".encode()).hexdigest(), 16) % 100
    return "test" if bucket < 10 else "val" if bucket < 20 else "train"


@cache
def known_questions(schema: Schema) -> tuple[Question, ...]:
    """All questions about a schema: the same in every process."""
    connection = build(schema)
    try:
        return tuple(
            pool(schema, connection, random.Random(f"questions about {schema.name}"), QUESTIONS_PER_SCHEMA)
        )
    finally:
        connection.close()


def task_from_question(question: Question, schema: Schema) -> Task:
    """All that a runner on any machine needs to run the agent and to judge its answer."""
    return {
        "question": question.text,
        "schema": schema.text(),
        "database": GENERATED + schema.name,
        "gold_sql": question.sql,
        "ordered": question.ordered,
        "family": question.family,
    }


def questions(split: Split, seed: int = 0, limit: int | None = None) -> list[Task]:
    """The tasks of a split, shuffled by `seed`; `schema` asks about the one schema that is in no other split.

    Seeds draw differently from the same parts: a question held out for one seed is held out for all.
    """
    if split not in DEFAULT_LIMITS:
        raise ValueError(
            f"there is no split {split!r} of the generated questions; known: {', '.join(DEFAULT_LIMITS)}"
        )
    schemas = (HELD_OUT_SCHEMA,) if split == "schema" else TRAINING_SCHEMAS
    tasks = [
        task_from_question(question, schema)
        for schema in schemas
        for question in known_questions(schema)
        if split == "schema" or part(schema.name, question.sql) == split
    ]
    random.Random(f"{split} {seed}").shuffle(tasks)
    return tasks[: DEFAULT_LIMITS[split] if limit is None else limit]


def _read_json(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ValueError(
            f"{path} is missing; Spider has train_spider.json, dev.json, tables.json and database/"
        )
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is not a list of objects")
    return rows


def _get(row: dict[str, Any], key: str, path: Path, index: int) -> Any:
    if key not in row:
        raise ValueError(f"{path}: entry {index} has no {key!r}")
    return row[key]


def _schema_texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for index, row in enumerate(_read_json(path)):
        tables = _get(row, "table_names_original", path, index)
        columns = _get(row, "column_names_original", path, index)
        try:
            texts[str(_get(row, "db_id", path, index))] = "\n".join(
                f"{table}({','.join(name for owner, name in columns if owner == number)})"
                for number, table in enumerate(tables)
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: entry {index} has a malformed 'column_names_original'") from error
    return texts


def _check_database(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ValueError(f"{path} is not a readable SQLite database: {error}") from error


def spider(
    path: str | Path, split: Literal["train", "val", "test"] = "train", limit: int | None = None
) -> list[Task]:
    """Tasks from a folder in Spider's layout; `train` is train_spider.json, `val` and `test` are dev.json.

    Raises ValueError that names the file and key when something is missing or malformed.
    """
    folder, files = Path(path), {"train": "train_spider.json", "val": "dev.json", "test": "dev.json"}
    if split not in files:
        raise ValueError(f"there is no split {split!r} of Spider; known: {', '.join(files)}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; data.path must be Spider's folder")
    source = folder / files[split]
    rows, schemas = _read_json(source)[:limit], _schema_texts(folder / "tables.json")
    tasks: list[Task] = []
    databases: dict[str, str] = {}
    for index, row in enumerate(rows):
        name, sql = str(_get(row, "db_id", source, index)), str(_get(row, "query", source, index))
        if name not in schemas:
            raise ValueError(
                f"{source}: entry {index} is about {name!r}, which {folder / 'tables.json'} does not have"
            )
        if name not in databases:
            file = folder / "database" / name / f"{name}.sqlite"
            _check_database(file)
            databases[name] = str(file.resolve())
        question = str(_get(row, "question", source, index))
        tasks.append(
            {
                "question": question,
                "schema": schemas[name],
                "database": databases[name],
                "gold_sql": sql,
                "ordered": is_ordered(sql),
                "family": "spider",
            }
        )
    return tasks


class SpiderTasks:
    """The Spider data set from its folder, as settings name it: `data=spider data.path=DIR`.

    Args:
        path: the folder with train_spider.json, dev.json, tables.json and database/.
        num_train: use only the first so many of train_spider.json; None is all.
        num_val: the same for dev.json.
        shuffle_seed: of the training questions' order before the limit applies; None keeps the file's.
    """

    def __init__(
        self,
        *,
        path: str,
        num_train: int | None = None,
        num_val: int | None = 200,
        shuffle_seed: int | None = 0,
    ) -> None:
        self._path = Path(path).expanduser()
        self._limits = {"train": num_train, "val": num_val, "test": None}
        self._shuffle_seed = shuffle_seed
        for file in ("train_spider.json", "dev.json", "tables.json", "database"):
            if not (self._path / file).exists():
                raise ValueError(
                    f"path={path}: {self._path / file} is missing, so this is not Spider's folder"
                )

    def load(self, mode: Literal["train", "val", "test"]) -> list[Task]:
        """The tasks of train_spider.json, or of dev.json for `val` and `test`."""
        tasks = spider(self._path, mode)
        if self._shuffle_seed is not None:
            random.Random(f"{mode} {self._shuffle_seed}").shuffle(tasks)
        return tasks[: self._limits[mode]]
