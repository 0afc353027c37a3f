"""Imperfect demonstrations for the starter policy, about random schemas and about training questions.

The demonstrator is a noisy expert: any part of a query may by chance be swapped for another of its kind, it
often notices an error and less often a wrong answer, and sometimes spoils a right one. The mistakes are
random, none is systematic. No held-out question, gold query or schema occurs.
"""

import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .execution import same_answer
from .instructions import Told, instructions
from .messages import ACCEPT, error_message, first_message, rows_message
from .questions import Asker, Question, ask
from .schemas import TRAINING_SCHEMAS, Column, Schema, Table, build
from .words import CATEGORIES, NAMES, NUMBERS, QUESTION_WORDS, SQL_WORDS, SYLLABLES, TABLES, VALUES

PREVIEW_ROWS = 3  # the agent's default


def _word(words: tuple[str, ...], rng: random.Random, taken: set[str]) -> str:
    """A new word: a real one, two halves of real ones, syllables or letters; the policy has to copy the unseen."""
    while True:
        kind = rng.choices(("real", "halves", "syllables", "letters"), (45, 30, 15, 10))[0]
        if kind == "real":
            word = rng.choice(words)
        elif kind == "halves":
            one, other = rng.choice(words), rng.choice(words)
            word = one[: rng.randint(1, 4)] + other[-rng.randint(2, 5) :].lower()
        elif kind == "syllables":
            word = "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((2, 3))))
        else:
            word = "".join(rng.choice("aabcdeefghiijklmnooprstuuvwy") for _ in range(rng.randint(3, 7)))
        word = word.capitalize() if words is VALUES else word
        if word not in taken and word not in QUESTION_WORDS and word.lower() not in SQL_WORDS:
            taken.add(word)
            return word


def _random_column(kind: str, rng: random.Random, taken: set[str]) -> Column:
    if kind == "number":
        low = rng.choice((0, 1, 5, 10, 20, 40))
        return Column(name=_word(NUMBERS, rng, taken), kind="number", low=low, high=low + rng.randint(20, 59))
    values: set[str] = set()
    for _ in range(rng.randint(3, 8) if kind == "category" else 26):
        _word(VALUES, rng, values)
    name = _word(CATEGORIES, rng, taken) if kind == "category" else _word(NAMES, rng, taken)
    return Column(name=name, kind="category" if kind == "category" else "name", values=tuple(sorted(values)))


def random_schema(rng: random.Random) -> Schema:
    """Two or three tables with random names, columns in random order, values and keys."""
    names: set[str] = set()
    tables: list[Table] = []
    shape = rng.choice(([None, 0], [None, 0], [None, None, 0]))
    for parent in shape:
        taken: set[str] = {"id"} | {c.name for t in tables for c in t.columns if rng.random() < 0.5}
        name = _word(TABLES, rng, names)
        is_child = parent is not None
        kinds = ["category"] * rng.choice((1, 1, 2)) + ["number"] * rng.choice((1, 2, 2))
        if not is_child or rng.random() < 0.5:
            kinds.append("name")
        columns = [_random_column(kind, rng, taken) for kind in kinds]
        rng.shuffle(columns)
        if is_child:
            keys = [Column(name=f"{t.name.removesuffix('s')}_id", kind="key", parent=t.name) for t in tables]
            columns[rng.choice((0, len(columns))) : 0] = keys
        rows = rng.randint(80, 160) if is_child else rng.randint(10, 26)
        tables.append(Table(name=name, num_rows=rows, columns=(Column(name="id", kind="id"), *columns)))
    return Schema(name=f"random {rng.random()}", tables=tuple(tables))


_TOKENS = re.compile(r"'[^']*'|\w+|[<>!]?=|[<>]|\s+|.")
_CLASSES = (
    ("AVG", "SUM", "MAX", "MIN", "COUNT"),
    ("=", "!=", ">", "<", ">=", "<="),
    ("DESC", "ASC"),
)


def corrupt(sql: str, schema: Schema, rng: random.Random) -> str:
    """The query with one part swapped for another of its kind, or with one part left out."""
    tokens = _TOKENS.findall(sql)
    tables = [table.name for table in schema.tables]
    columns = [column.name for table in schema.tables for column in table.columns]
    values = [f"'{v}'" for t in schema.tables for c in t.of_kind("category") for v in c.values]
    kinds = [*_CLASSES, tables, columns, values]
    spots = [(i, kind) for i, token in enumerate(tokens) for kind in kinds if token in kind]
    numbers = [i for i, token in enumerate(tokens) if token.isdigit()]
    if numbers and rng.random() < 0.15:
        i = rng.choice(numbers)
        tokens[i] = str(max(1, int(tokens[i]) + rng.choice((-20, -10, -5, -1, 1, 5, 10, 20))))
    elif " AND " in sql and "BETWEEN" not in sql and rng.random() < 0.3:
        return re.sub(r" AND [^()]*?(?=( GROUP| ORDER| LIMIT|\)|$))", "", sql, count=1)
    elif rng.random() < 0.08:
        return re.sub(r"(DISTINCT | DESC| WHERE [^()]*?(?=( GROUP| ORDER| LIMIT|\)|$)))", "", sql, count=1)
    else:
        i, kind = rng.choice(spots)
        tokens[i] = rng.choice([other for other in kind if other != tokens[i]])
    return "".join(tokens)


# Logs are mostly about the simpler questions: of these only a share is kept.
HARD_FAMILIES = (
    "join_count",
    "join_aggregate",
    "join_list",
    "join_group",
    "join_top",
    "without",
    "having",
    "group_count",
    "group_aggregate",
    "above_average",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Probabilities of the demonstrator's accidents."""

    wrong_query: float = 0.45
    second_slip: float = 0.3  # a wrong query has two mistakes
    rewrite_after_error: float = 0.8
    rewrite_after_wrong: float = 0.3
    rewrite_after_right: float = 0.05


Message = dict[str, str]


def _attempt(sql: str, schema: Schema, noise: Noise, rng: random.Random) -> str:
    if rng.random() < noise.wrong_query:
        sql = corrupt(sql, schema, rng)
        if rng.random() < noise.second_slip:
            sql = corrupt(sql, schema, rng)
    return sql


def conversation(
    question: Question,
    schema: Schema,
    database: sqlite3.Connection,
    *,
    noise: Noise,
    rng: random.Random,
    turns: int = 3,
    told: Told | None = None,
) -> list[Message]:
    """One demonstration in the agent's format: query, outcome, then OK or a new query, and so on.

    With instructions they stand below the question, and the query is meant as well as the demonstrator obeys them.
    """
    gold = database.execute(question.sql).fetchall()
    asked = first_message(question.text, schema.text())
    messages = [{"role": "user", "content": "\n".join([asked, *(told.lines if told else ())])}]
    rewrite = 1.0
    sql, failed = "", False
    for _ in range(turns):
        if rng.random() >= rewrite:
            messages.append({"role": "assistant", "content": ACCEPT})
            break
        if told is None or told.repairs or not failed:  # who does not repair what failed repeats it
            meant = told.meant(question.sql, failed=failed) if told else question.sql
            sql = _attempt(meant, schema, noise, rng)
        failed = False
        try:
            rows = database.execute(sql).fetchall()
            right = same_answer(rows, gold, ordered=question.ordered)
            outcome = rows_message(rows, PREVIEW_ROWS)
            rewrite = noise.rewrite_after_right if right else noise.rewrite_after_wrong
        except sqlite3.Error as error:
            outcome, rewrite, failed = error_message(error), noise.rewrite_after_error, True
        messages += [{"role": "assistant", "content": sql}, {"role": "user", "content": outcome}]
    return messages if messages[-1]["role"] == "assistant" else messages[:-1]


def demonstrations(
    count: int,
    *,
    noise: Noise,
    rng: random.Random,
    is_held_out: Callable[[str, str], bool],
    training_share: float = 0.35,
    hard_share: float = 0.3,
    per_schema: int = 12,
    instructed: bool = False,
) -> Iterator[list[Message]]:
    """`count` conversations, `training_share` of them about training schemas, the rest about random ones.

    `instructed` puts instructions below the questions, which the demonstrator obeys.
    """
    known = [(schema, build(schema)) for schema in TRAINING_SCHEMAS]
    made = 0
    while made < count:
        training = rng.random() < training_share
        schema, database = rng.choice(known) if training else (fresh := random_schema(rng), build(fresh))
        asker = Asker(schema, database, rng)
        for _ in range(per_schema):
            question = ask(asker)
            if question is None or is_held_out(schema.name, question.sql):
                continue
            if question.family in HARD_FAMILIES and rng.random() >= hard_share:
                continue
            told = instructions(rng) if instructed else None
            talk = conversation(question, schema, database, noise=noise, rng=rng, told=told)
            if any(is_held_out(schema.name, m["content"]) for m in talk if m["role"] == "assistant"):
                continue  # a slip can hit upon a held-out query
            made += 1
            yield talk
        if not training:
            database.close()
    for _, database in known:
        database.close()
