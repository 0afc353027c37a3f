"""The scripted model keeps the rules that the README states."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from rooms_recipe import script
from rooms_recipe.agent import TOOL
from rooms_recipe.data import requests
from rooms_recipe.office import Request, day, list_rooms, requests_in, right_room
from rooms_recipe.script import BLAND, HABITS, HARM, answer, broken_rule, broken_rules, pick

START = "You are a booking assistant.\n\n{request}"
ALL = "\n".join([START, *(habit.advice for habit in HABITS.values())])
TASKS = requests("train", limit=96)


def booked(prompt: str, task: dict[str, Any], seed: str = "0/0") -> str:
    """The assistant's last words on a task, as the agent asks for them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt.format(request=task["request"])}]
    message = answer({"tools": [TOOL], "messages": messages}, seed)
    if message.get("tool_calls"):
        date = json.loads(message["tool_calls"][0]["function"]["arguments"])["date"]
        messages += [{"role": "assistant", **message}, {"role": "tool", "content": list_rooms(date)}]
        message = answer({"tools": [TOOL], "messages": messages}, seed)
    return str(message["content"])


def accuracy(prompt: str) -> float:
    right = [f"ROOM: {task['answer']}" in booked(prompt, task).splitlines() for task in TASKS]
    return sum(right) / len(right)


def test_each_instruction_makes_more_answers_right() -> None:
    start = accuracy(START)
    assert 0.1 < start < 0.35
    assert accuracy(ALL) > 0.8
    for name, habit in HABITS.items():
        assert accuracy(f"{START}\n{habit.advice}") > start, name
        without = "\n".join([START, *(other.advice for key, other in HABITS.items() if key != name)])
        assert accuracy(without) < accuracy(ALL), name


def test_bland_advice_changes_nothing() -> None:
    assert accuracy("\n".join([START, *BLAND])) == accuracy(START)


@pytest.mark.parametrize("line", HARM)
def test_harmful_advice_makes_answers_wrong(line: str) -> None:
    assert accuracy(f"{ALL}\n{line}") < accuracy(ALL) - 0.1


def test_a_long_prompt_is_followed_less() -> None:
    assert accuracy(f"{ALL}\n{'word ' * 200}") < accuracy(ALL)


def test_advice_is_what_its_rule_asks_for_and_no_others() -> None:
    for name, habit in HABITS.items():
        kept = [
            key for key, other in HABITS.items() if re.search(other.asked_for, habit.advice, re.IGNORECASE)
        ]
        assert kept == [name]


def test_equal_requests_get_equal_answers_and_other_seeds_others() -> None:
    answers = [booked(START, task) for task in TASKS]
    assert answers == [booked(START, task) for task in TASKS]
    assert answers != [booked(START, task, "1/0") for task in TASKS]


def test_someone_with_every_habit_picks_the_right_room() -> None:
    for task in TASKS[:40]:
        ((_, _, request),) = requests_in(task["request"])
        assert pick(request, list(day(request.date)), set(HABITS)) == right_room(request)


def test_a_request_that_is_not_understood_is_asked_for() -> None:
    assert (
        "Which room"
        in answer({"tools": [TOOL], "messages": [{"role": "user", "content": "Hi"}]}, "0")["content"]
    )


@pytest.mark.parametrize("name", [name for name in HABITS if name != "format"])
def test_the_optimizer_sees_which_habit_was_missing(name: str) -> None:
    """Where leaving out one habit changes the answer, the conversation shows a broken rule; mostly that one."""
    seen: list[str | None] = []
    for task in TASKS:
        ((_, _, request),) = requests_in(task["request"])
        room = pick(request, list(day(request.date)), set(HABITS) - {name})
        if room != right_room(request):
            seen.append(broken_rule(request, f"{list_rooms(request.date)}\nassistant: Done.\nROOM: {room}"))
    assert seen.count(name) > 0.6 * len(seen) > 0


def test_right_answers_break_no_rule_and_prose_breaks_the_format() -> None:
    task = TASKS[0]
    ((_, _, request),) = requests_in(task["request"])
    shown = f"{task['request']}\ntool: {list_rooms(request.date)}\nassistant: Done.\n"
    assert broken_rules(f"{shown}ROOM: {right_room(request)}") == {}
    assert broken_rules(f"{shown}Take {right_room(request)}.") == {"format": 1}
    assert broken_rules(f"{shown}Take it.\n{shown}Take it.") == {"format": 2}


def optimizer(text: str, seed: str) -> str:
    return str(answer({"messages": [{"role": "user", "content": text}]}, seed)["content"])


def wrong(name: str) -> str:
    """A conversation in which one habit was missing."""
    for task in TASKS:
        ((_, _, request),) = requests_in(task["request"])
        shown = f"{task['request']}\ntool: {list_rooms(request.date)}\nassistant: Done.\n"
        room = pick(request, list(day(request.date)), set(HABITS) - {name})
        if broken_rule(request, f"{shown}ROOM: {room}") == name:
            return f"{shown}ROOM: {room}"
    raise AssertionError(name)


def test_a_critique_names_what_the_transcripts_show_at_the_stated_rate() -> None:
    text = wrong("period")
    named = [HABITS["period"].complaint in optimizer(text, str(seed)) for seed in range(400)]
    assert abs(sum(named) / 400 - (1 - script.MISREAD)) < 0.06


def test_a_rewrite_follows_its_critique_at_the_stated_rates() -> None:
    text = f"<prompt>\n{START}\n</prompt>\n# What is wrong with it\n{HABITS['access'].complaint}"
    rewrites = [optimizer(text, str(seed)) for seed in range(600)]
    assert all(one.startswith("<prompt>\nYou are a booking assistant.") for one in rewrites)
    parts = {
        "addressed": sum(HABITS["access"].advice in one for one in rewrites) / 600,
        "harmful": sum(any(line in one for line in HARM) for one in rewrites) / 600,
        "careless": sum("{request}" not in one for one in rewrites) / 600,
    }
    expected = {"addressed": 1 - script.VAGUE, "harmful": script.HARMFUL, "careless": script.CARELESS}
    assert all(abs(parts[name] - expected[name]) < 0.05 for name in parts), parts


def test_a_rewrite_without_a_critique_draws_from_all_advice() -> None:
    text = f"<prompt>\n{START}\n</prompt>\nWrite a better prompt for the same purpose."
    pool = [*(habit.advice for habit in HABITS.values()), *BLAND, *HARM]
    used = {line for seed in range(300) for line in pool if line in optimizer(text, str(seed))}
    assert used == set(pool)


def test_a_rewrite_is_never_the_prompt_itself() -> None:
    text = f"<prompt>\n{ALL}\n</prompt>\n# What is wrong with it\n{HABITS['access'].complaint}"
    assert all(f"<prompt>\n{ALL}\n</prompt>" != optimizer(text, str(seed)) for seed in range(100))


def test_transcripts_and_prompt_in_one_question_are_answered_by_a_rewrite() -> None:
    text = f"The prompt:\n```\n{START}\n```\nWhat it did:\n{wrong('smallest')}"
    answers = [optimizer(text, str(seed)) for seed in range(50)]
    assert all(one.startswith("```\n") and one.endswith("\n```") for one in answers)
    assert sum(HABITS["smallest"].advice in one for one in answers) > 20


def test_a_chance_is_a_tasks_own() -> None:
    request = Request(date="2026-03-02", start=600, minutes=60, people=6, needs=(), step_free=False)
    draws = {script._chance(name, request, "0") for name in HABITS}
    assert len(draws) == len(HABITS)
    assert Random("0/period/" + str(request)).random() in draws
