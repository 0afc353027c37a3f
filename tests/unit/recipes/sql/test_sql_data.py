import functools
import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sql_recipe.data import part, questions, spider
from sql_recipe.demonstrations import Noise, corrupt, demonstrations
from sql_recipe.execution import QueryError, execute, is_ordered, same_answer
from sql_recipe.make_policy import is_held_out
from sql_recipe.schemas import HELD_OUT_SCHEMA, SCHEMAS, TRAINING_SCHEMAS

ALL = 10**6
SPLITS = ("train", "val", "test", "schema")


def golds(tasks: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(task["database"], task["gold_sql"]) for task in tasks}


@functools.cache
def everything(split: Any) -> list[dict[str, Any]]:
    return questions(split, limit=ALL)


def test_there_are_thousands_of_questions_with_distinct_gold_queries() -> None:
    sizes = {split: len(everything(split)) for split in SPLITS}
    assert sizes["train"] > 5000
    assert min(sizes["val"], sizes["test"]) > 600
    assert sizes["schema"] > 500
    for split in SPLITS:
        tasks = everything(split)
        assert len(golds(tasks)) == len(tasks)
    assert len({task["family"] for task in questions("val")}) >= 15
    assert [len(questions(split)) for split in SPLITS] == [4000, 300, 400, 200]


def test_what_is_held_out_is_held_out_for_every_seed() -> None:
    trained = set.union(*(golds(questions("train", seed, ALL)) for seed in (0, 1, 2)))
    val, test = (
        set.union(*(golds(questions(split, seed)) for seed in (0, 1, 2))) for split in ("val", "test")
    )
    assert not trained & val
    assert not trained & test
    assert not val & test
    assert {task["database"] for task in questions("schema")} == {f"generated:{HELD_OUT_SCHEMA.name}"}
    assert HELD_OUT_SCHEMA not in TRAINING_SCHEMAS
    assert f"generated:{HELD_OUT_SCHEMA.name}" not in {database for database, _ in trained | val | test}


def test_a_seed_gives_the_same_tasks_and_another_seed_others() -> None:
    assert questions("test", 1) == questions("test", 1)
    assert golds(questions("test", 0)) != golds(questions("test", 1))


@pytest.mark.parametrize("split", SPLITS)
def test_every_gold_query_answers_with_something(split: Any) -> None:
    for task in questions(split, limit=400):
        rows = execute(task["database"], task["gold_sql"])
        assert any(cell is not None for row in rows for cell in row), task
        assert task["ordered"] == is_ordered(task["gold_sql"])
        assert json.loads(json.dumps(task)) == task


def test_a_wrong_query_is_rarely_right_by_accident() -> None:
    rng, lucky, tried = random.Random(0), 0, 0
    for task in questions("val"):
        schema = SCHEMAS[task["database"].removeprefix("generated:")]
        gold = execute(task["database"], task["gold_sql"])
        for _ in range(3):
            wrong = corrupt(task["gold_sql"], schema, rng)
            if wrong == task["gold_sql"]:
                continue
            tried += 1
            try:
                lucky += same_answer(execute(task["database"], wrong), gold, ordered=task["ordered"])
            except QueryError:
                continue
    assert tried > 800
    assert lucky / tried < 0.08  # most of them say the same in other words, such as <= 20 where no row has 20


def test_demonstrations_contain_nothing_held_out() -> None:
    held_out = {sql for split in ("val", "test", "schema") for _, sql in golds(everything(split))}
    asked = {task["question"] for split in ("val", "test", "schema") for task in everything(split)}
    talks = list(demonstrations(400, noise=Noise(), rng=random.Random(5), is_held_out=is_held_out))
    training = [schema.text() for schema in TRAINING_SCHEMAS]
    assert 0.2 < sum(talk[0]["content"].rsplit("\n", 1)[0] in training for talk in talks) / len(talks) < 0.6
    names = {name for table in HELD_OUT_SCHEMA.tables for name in (table.name, f"{table.name}.id")}
    for talk in talks:
        said = {message["content"] for message in talk if message["role"] == "assistant"}
        schema, question = talk[0]["content"].rsplit("\n", 1)
        assert schema != HELD_OUT_SCHEMA.text()
        assert not names & set(schema.replace("(", "\n").split("\n"))
        if schema in training:
            assert not said & held_out
            assert question not in asked


def test_which_side_a_query_is_on_never_changes() -> None:
    known = {"SELECT 0": "train", "SELECT 2": "test", "SELECT 38": "val"}
    assert {sql: part("shop", sql) for sql in known} == known


def test_demonstrations_are_conversations_of_the_agent() -> None:
    talks = list(demonstrations(300, noise=Noise(), rng=random.Random(1), is_held_out=is_held_out))
    for talk in talks:
        assert [message["role"] for message in talk] == ["user", "assistant"] * (len(talk) // 2)
        assert 1 <= len(talk) // 2 <= 3
        assert talk[1]["content"] != "OK"
    contents = [message["content"] for talk in talks for message in talk[2:]]
    assert any(text.startswith("error: ") for text in contents)
    assert any(" rows: " in text for text in contents)
    assert "OK" in contents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small data set in Spider's layout."""
    (tmp_path / "database" / "pets").mkdir(parents=True)
    with sqlite3.connect(tmp_path / "database" / "pets" / "pets.sqlite") as connection:
        connection.execute("CREATE TABLE Pet (PetID INTEGER, Name TEXT, Owner INTEGER)")
        connection.execute("INSERT INTO Pet VALUES (1, 'Rex', 2), (2, 'Tom', 1)")
    tables = [{
        "db_id": "pets", "table_names_original": ["Pet", "Owner"],
        "column_names_original": [[-1, "*"], [0, "PetID"], [0, "Name"], [0, "Owner"], [1, "OwnerID"]],
    }]  # fmt: skip
    rows = [
        {"db_id": "pets", "question": "Which pets are there?", "query": "SELECT Name FROM Pet ORDER BY Name"},
        {"db_id": "pets", "question": "How many pets?", "query": "SELECT count(*) FROM Pet"},
    ]
    (tmp_path / "tables.json").write_text(json.dumps(tables))
    (tmp_path / "train_spider.json").write_text(json.dumps(rows))
    (tmp_path / "dev.json").write_text(json.dumps(rows[1:]))
    return tmp_path


def test_spider_is_read_from_its_own_layout(folder: Path) -> None:
    first, second = spider(folder)
    assert first == {
        "question": "Which pets are there?",
        "schema": "Pet(PetID,Name,Owner)\nOwner(OwnerID)",
        "database": str((folder / "database/pets/pets.sqlite").resolve()),
        "gold_sql": "SELECT Name FROM Pet ORDER BY Name",
        "ordered": True,
        "family": "spider",
    }
    assert execute(second["database"], second["gold_sql"]) == [(2,)]
    assert spider(folder, "val") == spider(folder, "test") == [second]
    assert spider(folder, limit=1) == [first]


def break_(folder: Path, how: str) -> None:
    match how:
        case "no folder":
            shutil.rmtree(folder)
        case "no train file":
            (folder / "train_spider.json").unlink()
        case "not json":
            (folder / "train_spider.json").write_text("[{")
        case "not a list":
            (folder / "train_spider.json").write_text('{"a": 1}')
        case "no query":
            (folder / "train_spider.json").write_text('[{"db_id": "pets", "question": "?"}]')
        case "unknown database":
            (folder / "train_spider.json").write_text(
                '[{"db_id": "cars", "question": "?", "query": "SELECT 1"}]'
            )
        case "no tables":
            (folder / "tables.json").unlink()
        case "bad columns":
            row = {"db_id": "pets", "table_names_original": ["a"], "column_names_original": [3]}
            (folder / "tables.json").write_text(json.dumps([row]))
        case "no database":
            (folder / "database/pets/pets.sqlite").unlink()
        case _:
            (folder / "database/pets/pets.sqlite").write_text("not a database" * 100)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no folder", "is not a folder; data.path must be Spider's folder"),
        ("no train file", "train_spider.json is missing"),
        ("not json", "train_spider.json is not valid JSON"),
        ("not a list", "train_spider.json is not a list of objects"),
        ("no query", "train_spider.json: entry 0 has no 'query'"),
        ("unknown database", "entry 0 is about 'cars'"),
        ("no tables", "tables.json is missing"),
        ("bad columns", "tables.json: entry 0 has a malformed 'column_names_original'"),
        ("no database", "pets.sqlite is missing"),
        ("corrupt database", "pets.sqlite is not a readable SQLite database"),
    ],
)
def test_a_broken_spider_folder_is_explained_in_one_line(folder: Path, how: str, says: str) -> None:
    break_(folder, how)
    with pytest.raises(ValueError, match=r".") as error:
        spider(folder)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_splits_are_named() -> None:
    with pytest.raises(ValueError, match=r"no split 'dev'.*train, val, test, schema"):
        questions("dev")  # type: ignore[arg-type]
