"""Compositional questions about any schema, each with its gold SQL.

A question is a family (what is asked) times conditions (about which rows) times the schema's tables,
columns and values. A sampled candidate is kept only when its answer says something: never empty, never only
NULL, its conditions select some rows but not all, and where order or a maximum decides, there is no tie.
"""

import random
import sqlite3
from collections.abc import Callable

from .asker import Asker, Filter, Question
from .schemas import Schema

MAX_ANSWER_ROWS = 40  # longer answers cost time and teach nothing new
AGGREGATES = {
    "average": "AVG",
    "mean": "AVG",
    "total": "SUM",
    "highest": "MAX",
    "maximum": "MAX",
    "lowest": "MIN",
    "minimum": "MIN",
}


def _list(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    column, f = a.shown(table), a.filter(table, (0, 7, 3))
    text = a.rng.choice(
        (
            f"List the {column.name} of {table.name}{f.words}.",
            f"Show the {column.name} of all {table.name}{f.words}.",
            f"What {column.name} do the {table.name}{f.words} have?",
        )
    )
    return Question(
        text=text, sql=f"SELECT {column.name} FROM {table.name}{f.where}", family="list", where=f.where
    )


def _list_two(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    one, two = a.rng.sample(table.of_kind("name", "category", "number"), 2)
    f = a.filter(table, (0, 8, 2))
    verb = a.rng.choice(("List", "Show"))
    return Question(
        text=f"{verb} the {one.name} and {two.name} of {table.name}{f.words}.",
        sql=f"SELECT {one.name}, {two.name} FROM {table.name}{f.where}",
        family="list_two",
        where=f.where,
    )


def _count(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    f = a.filter(table, (1, 5, 4))
    text = a.rng.choice(
        (
            f"How many {table.name}{f.words} are there?",
            f"Count the {table.name}{f.words}.",
            f"What is the number of {table.name}{f.words}?",
        )
    )
    return Question(
        text=text, sql=f"SELECT COUNT(*) FROM {table.name}{f.where}", family="count", where=f.where
    )


def _aggregate(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    column, f = a.rng.choice(table.of_kind("number")), a.filter(table)
    word = a.rng.choice(sorted(AGGREGATES))
    text = a.rng.choice(
        (
            f"What is the {word} {column.name} of {table.name}{f.words}?",
            f"Find the {word} {column.name} of all {table.name}{f.words}.",
        )
    )
    return Question(
        text=text,
        sql=f"SELECT {AGGREGATES[word]}({column.name}) FROM {table.name}{f.where}",
        family="aggregate",
        where=f.where,
    )


def _distinct(a: Asker) -> Question:
    table = a.rng.choice([t for t in a.schema.tables if t.of_kind("category")])
    column = a.rng.choice(table.of_kind("category"))
    f = a.filter(table, avoid=column.name)
    word = a.rng.choice(("distinct", "different"))
    if a.rng.random() < 0.5:
        return Question(
            text=f"How many {word} {column.name} do the {table.name}{f.words} have?",
            sql=f"SELECT COUNT(DISTINCT {column.name}) FROM {table.name}{f.where}",
            family="count_distinct",
            where=f.where,
        )
    return Question(
        text=f"List the {word} {column.name} of {table.name}{f.words}.",
        sql=f"SELECT DISTINCT {column.name} FROM {table.name}{f.where}",
        family="distinct",
        where=f.where,
    )


def _top(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    column, by, f = a.shown(table), a.rng.choice(table.of_kind("number")), a.filter(table, (4, 6, 0))
    most = a.rng.random() < 0.5
    count = a.rng.choice((1, 1, 2, 3, 4, 5))
    word = "highest" if most else "lowest"
    if count == 1:
        text = f"Show the {column.name} of the {table.name}{f.words} with the {word} {by.name}."
    else:
        text = f"Show the {column.name} of the {count} {table.name}{f.words} with the {word} {by.name}."
    order = f"ORDER BY {by.name}{' DESC' if most else ''} LIMIT"
    inner = f"SELECT {by.name} FROM {table.name}{f.where} {order} {count + 1}"
    return Question(
        text=text,
        sql=f"SELECT {column.name} FROM {table.name}{f.where} {order} {count}",
        family="top",
        ordered=True,
        where=f.where,
        no_ties=f"SELECT COUNT({by.name}) = COUNT(DISTINCT {by.name}) FROM ({inner})",
    )


def _sorted(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    column, by, f = a.shown(table), a.rng.choice(table.of_kind("number")), a.filter(table, (2, 8, 0))
    down = a.rng.random() < 0.5
    text = f"List the {column.name} of {table.name}{f.words} sorted by {by.name}"
    text += (
        a.rng.choice((" descending.", " from high to low.")) if down else a.rng.choice((".", " ascending."))
    )
    return Question(
        text=text,
        family="sorted",
        ordered=True,
        where=f.where,
        sql=f"SELECT {column.name} FROM {table.name}{f.where} ORDER BY {by.name}{' DESC' if down else ''}",
        no_ties=f"SELECT COUNT({by.name}) = COUNT(DISTINCT {by.name}) FROM {table.name}{f.where}",
    )


def _group(a: Asker) -> Question:
    table = a.rng.choice([t for t in a.schema.tables if t.of_kind("category")])
    column = a.rng.choice(table.of_kind("category"))
    f = a.filter(table, (4, 6, 0), avoid=column.name)
    tail = f"FROM {table.name}{f.where} GROUP BY {column.name}"
    if a.rng.random() < 0.5:
        text = a.rng.choice(
            (
                f"How many {table.name}{f.words} are there for each {column.name}?",
                f"Count the {table.name}{f.words} for each {column.name}.",
            )
        )
        return Question(
            text=text, sql=f"SELECT {column.name}, COUNT(*) {tail}", family="group_count", where=f.where
        )
    word, number = a.rng.choice(sorted(AGGREGATES)), a.rng.choice(table.of_kind("number"))
    return Question(
        text=f"What is the {word} {number.name} of {table.name}{f.words} for each {column.name}?",
        sql=f"SELECT {column.name}, {AGGREGATES[word]}({number.name}) {tail}",
        family="group_aggregate",
        where=f.where,
    )


def _having(a: Asker) -> Question:
    table = a.rng.choice([t for t in a.schema.tables if t.of_kind("category")])
    column = a.rng.choice(table.of_kind("category"))
    f = a.filter(table, (5, 5, 0), avoid=column.name)
    least = a.rng.randint(2, 30)
    return Question(
        text=f"Which {column.name} have more than {least} {table.name}{f.words}?",
        family="having",
        where=f.where,
        sql=f"SELECT {column.name} FROM {table.name}{f.where} GROUP BY {column.name} "
        f"HAVING COUNT(*) > {least}",
    )


def _above_average(a: Asker) -> Question:
    table = a.rng.choice(a.schema.tables)
    column, by = a.shown(table), a.rng.choice(table.of_kind("number"))
    word, sign = a.rng.choice((("above", ">"), ("below", "<")))
    count = a.rng.random() < 0.4
    head = f"How many {table.name} have" if count else f"List the {column.name} of {table.name} with"
    return Question(
        text=f"{head} {by.name} {word} the average{'?' if count else '.'}",
        family="above_average",
        sql=f"SELECT {'COUNT(*)' if count else column.name} FROM {table.name} "
        f"WHERE {by.name} {sign} (SELECT AVG({by.name}) FROM {table.name})",
    )


def _join(a: Asker) -> Question:
    child, parent, tail = a.pair()
    f = a.filter(parent, (0, 9, 1), prefix=f"{parent.name}.")
    if not f.where:
        f = Filter(
            words=f" with id {(key := a.rng.randint(1, parent.num_rows))}",
            where=f" WHERE {parent.name}.id = {key}",
        )
    of = f"{child.name} of {parent.name}{f.words}"
    what = a.rng.random()
    if what < 0.35:
        return Question(
            text=a.rng.choice((f"How many {of} are there?", f"Count the {of}.")),
            family="join_count",
            where=f.where,
            sql=f"SELECT COUNT(*) {tail}{f.where}",
        )
    if what < 0.65:
        word, number = a.rng.choice(sorted(AGGREGATES)), a.rng.choice(child.of_kind("number"))
        return Question(
            text=f"What is the {word} {number.name} of {of}?",
            family="join_aggregate",
            sql=f"SELECT {AGGREGATES[word]}({child.name}.{number.name}) {tail}{f.where}",
        )
    column = a.rng.choice(child.of_kind("name", "category", "number"))
    return Question(
        text=a.rng.choice((f"List the {column.name} of {of}.", f"Show the {column.name} of all {of}.")),
        family="join_list",
        where=f.where,
        sql=f"SELECT {child.name}.{column.name} {tail}{f.where}",
    )


def _join_group(a: Asker) -> Question:
    child, parent, tail = a.pair()
    column = a.rng.choice(parent.of_kind("category", "name"))
    full, f = f"{parent.name}.{column.name}", a.filter(child, (4, 6, 0), prefix=f"{child.name}.")
    end = f"{tail}{f.where} GROUP BY {full}"
    if a.rng.random() < 0.5:
        return Question(
            text=f"How many {child.name}{f.words} are there for each {column.name} of {parent.name}?",
            sql=f"SELECT {full}, COUNT(*) {end}",
            family="join_group",
            where=f.where,
        )
    counts = f"SELECT COUNT(*) AS n {end} ORDER BY n DESC LIMIT 2"
    return Question(
        text=f"Which {column.name} of {parent.name} has the most {child.name}{f.words}?",
        sql=f"SELECT {full} {end} ORDER BY COUNT(*) DESC LIMIT 1",
        family="join_top",
        where=f.where,
        ordered=True,
        no_ties=f"SELECT COUNT(*) = 2 AND COUNT(DISTINCT n) = 2 FROM ({counts})",
    )


def _without(a: Asker) -> Question:
    child, key = a.rng.choice([(t, c) for t in a.schema.tables for c in t.of_kind("key")])
    parent = a.schema.table(key.parent)
    column, f = a.shown(parent), a.filter(child, (1, 5, 4))
    return Question(
        text=f"List the {column.name} of {parent.name} without any {child.name}{f.words}.",
        sql=f"SELECT {column.name} FROM {parent.name} WHERE id NOT IN "
        f"(SELECT {key.name} FROM {child.name}{f.where})",
        family="without",
    )


FAMILIES: tuple[tuple[Callable[[Asker], Question], int], ...] = (
    (_list, 10),
    (_list_two, 7),
    (_count, 9),
    (_aggregate, 10),
    (_distinct, 6),
    (_top, 9),
    (_sorted, 6),
    (_group, 9),
    (_having, 4),
    (_above_average, 4),
    (_join, 14),
    (_join_group, 6),
    (_without, 4),
)


def _says_something(question: Question, database: sqlite3.Connection) -> bool:
    if question.no_ties and not database.execute(question.no_ties).fetchone()[0]:
        return False
    rows = database.execute(question.sql).fetchmany(MAX_ANSWER_ROWS + 1)
    if not 1 <= len(rows) <= MAX_ANSWER_ROWS or all(cell is None for row in rows for cell in row):
        return False
    if rows == [(0,)]:
        return False
    plain = question.sql.replace(question.where, "", 1) if question.where else ""
    return not plain or database.execute(plain).fetchmany(MAX_ANSWER_ROWS + 1) != rows


def ask(asker: Asker) -> Question | None:
    """One question about the asker's schema, or None when the candidate drawn says nothing."""
    family = asker.rng.choices([f for f, _ in FAMILIES], [weight for _, weight in FAMILIES])[0]
    question = family(asker)
    return question if _says_something(question, asker.database) else None


def pool(schema: Schema, database: sqlite3.Connection, rng: random.Random, count: int) -> list[Question]:
    """Up to `count` questions with distinct gold SQL (fewer when the schema has no more to ask)."""
    asker, found = Asker(schema, database, rng), dict[str, Question]()
    for _ in range(count * 8):
        question = ask(asker)
        if question is not None:
            found.setdefault(question.sql, question)
        if len(found) == count:
            break
    return list(found.values())
