"""The scripted model of gepa_sql keeps the rules that the README states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sql_recipe.data import questions
from sql_recipe.execution import Limits, QueryError, execute, same_answer
from sql_recipe.messages import error_message, sql_from_answer, wrong_message
from sql_recipe.script import EXPLANATION, GUESSES, HABITS, HARM, SPOILS, answer, find_question, not_kept

START = "Write an SQLite query for the question.\n\n{schema}\n{question}"
ALL = "\n".join([START, *(habit.advice for habit in HABITS.values())])
TASKS = questions("train", limit=80)


def talked(prompt: str, task: dict[str, Any]) -> tuple[bool, str, str]:
    """Whether the last query is right, the query, and its outcome."""
    messages = [{"role": "user", "content": prompt.format(schema=task["schema"], question=task["question"])}]
    rows, query, outcome = None, "", ""
    for turn in range(3):
        said = answer({"messages": messages}, "0/0")["content"]
        sql = sql_from_answer(said)
        if sql is None and turn:
            break
        query = sql or ""
        try:
            rows = execute(task["database"], query, Limits())
            outcome = "some rows"
        except QueryError as error:
            rows, outcome = None, error_message(error)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": outcome}]
    right = execute(task["database"], task["gold_sql"], Limits())
    return rows is not None and same_answer(rows, right, ordered=task["ordered"]), query, outcome


def accuracy(prompt: str) -> float:
    return sum(talked(prompt, task)[0] for task in TASKS) / len(TASKS)


def test_instructions_make_most_answers_right() -> None:
    assert 0.2 < accuracy(START) < 0.5
    assert accuracy(ALL) > 0.9
    assert accuracy(f"{ALL}\n{HARM[0]}\n{HARM[1]}") < accuracy(ALL) - 0.2


@pytest.mark.parametrize("name", ["format", "columns", "text", "join"])
def test_an_instruction_helps_where_its_habit_matters(name: str) -> None:
    assert accuracy(f"{START}\n{HABITS[name].advice}") > accuracy(START)


def test_every_advice_asks_for_its_habit_and_for_no_other() -> None:
    for name, habit in HABITS.items():
        asked = {other for other in HABITS if HABITS[other].is_kept(habit.advice, 0.9)}
        assert asked == {name}


@pytest.mark.parametrize(
    ("name", "gold", "spoilt"),
    [
        ("columns", "SELECT a, b FROM t", "SELECT id, a, b FROM t"),
        ("columns", "SELECT DISTINCT a FROM t", "SELECT DISTINCT id, a FROM t"),
        ("columns", "SELECT t.a FROM t JOIN u ON t.x = u.id", "SELECT t.id, t.a FROM t JOIN u ON t.x = u.id"),
        ("columns", "SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM t"),
        ("group", "SELECT a, COUNT(*) FROM t GROUP BY a", "SELECT COUNT(*) FROM t GROUP BY a"),
        ("group", "SELECT a FROM t GROUP BY a HAVING COUNT(*) > 2", "SELECT a FROM t GROUP BY a"),
        ("order", "SELECT a FROM t ORDER BY b DESC LIMIT 2", "SELECT a FROM t LIMIT 2"),
        ("distinct", "SELECT COUNT(DISTINCT a) FROM t", "SELECT COUNT(a) FROM t"),
        ("subquery", "SELECT a FROM t WHERE b > (SELECT AVG(b) FROM t)", "SELECT a FROM t WHERE b > AVG(b)"),
        (
            "text",
            "SELECT a FROM t WHERE b IN ('Oslo', 'Rome')",
            "SELECT a FROM t WHERE b IN ('oslo', 'rome')",
        ),
        ("join", "SELECT u.a FROM t JOIN u ON t.x = u.id", "SELECT u.a FROM t"),
        ("format", "SELECT a FROM t", f"SELECT a FROM t{EXPLANATION}"),
    ],
)
def test_a_query_is_spoilt_as_stated_and_the_optimizer_sees_it(name: str, gold: str, spoilt: str) -> None:
    assert SPOILS[name](gold) == spoilt
    found = not_kept(f"note: {wrong_message(spoilt, '3 rows: 1', gold)}")
    assert found == ({name: 1} if spoilt != gold else {})


def test_the_optimizer_reads_the_notes_behind_wrong_answers() -> None:
    seen: Counter[str] = Counter()
    for task in TASKS:
        right, query, outcome = talked(START, task)
        if not right:
            seen += not_kept(f"user: x\n\nnote: {wrong_message(query, outcome, task['gold_sql'])}\n\n# Next")
    assert set(seen) >= {"format", "repair", "columns", "text", "join"}
    assert not_kept("note: right") == {}


def test_a_question_is_found_in_any_prompt() -> None:
    task = TASKS[0]
    text = f"Hints.\n{task['schema']}\n\nQ: {task['question']} Thanks!"
    found = find_question(text)
    assert found is not None
    assert found[1:] == (task["question"], task["gold_sql"])
    assert task["question"] not in found[0]
    assert find_question("What is the answer?") is None
    (said,) = answer({"messages": [{"role": "user", "content": "Hello"}]}, "0").values()
    assert sql_from_answer(said) is None


def test_it_guesses_names_when_told_to() -> None:
    import re

    assert re.search(GUESSES, HARM[0], re.IGNORECASE)
    queries = [talked(f"{ALL}\n{HARM[0]}", task)[1] for task in TASKS]
    assert 0.2 < sum("_name" in query for query in queries) / len(queries) < 0.6


def test_it_optimizes_where_it_is_asked_to() -> None:
    note = wrong_message("SELECT id, a FROM t", "3 rows", "SELECT a FROM t")
    question = f"<prompt>\n{START}\n</prompt>\n# Transcript 1\nnote: {note}\n# Your reflection"
    said = [
        answer({"messages": [{"role": "user", "content": question}]}, f"{seed}")["content"]
        for seed in range(40)
    ]
    assert sum(HABITS["columns"].advice in one for one in said) > 20
