"""The demonstrator of the policy that follows instructions does what they ask for, and otherwise what it is used to."""

import random
from collections.abc import Sequence

from sql_recipe.demonstrations import Noise, demonstrations
from sql_recipe.instructions import Told, instructions
from sql_recipe.make_policy import is_held_out
from sql_recipe.script import BLAND, EXPLANATION, HABITS, HARM

GOLD = "SELECT DISTINCT name FROM a JOIN b ON a.id = b.a_id WHERE x = 'Y' ORDER BY name"
ALL = tuple(habit.advice for habit in HABITS.values())


def told(*lines: str, chance: float) -> Told:
    """A conversation in which every habit's chance is this."""

    class Fixed(random.Random):
        def random(self) -> float:
            return chance

    return Told(lines, Fixed())


def test_what_is_asked_for_is_done() -> None:
    assert told(*ALL, chance=0.9).meant(GOLD, failed=False) == GOLD
    assert told(*ALL, chance=0.9).repairs


def test_what_is_not_asked_for_is_left_out_where_the_habit_is_not_there() -> None:
    meant = told(chance=0.9).meant(GOLD, failed=False)
    assert meant.endswith(EXPLANATION)
    assert not any(part in meant for part in ("DISTINCT", "JOIN", "ORDER BY", "'Y'"))
    assert not told(chance=0.9).repairs


def test_some_habits_are_kept_unasked() -> None:
    assert told(chance=0.05).meant(GOLD, failed=False) == GOLD


def test_an_error_is_answered_without_what_causes_most_of_them() -> None:
    meant = told(HABITS["repair"].advice, chance=0.9).meant(GOLD, failed=True)
    assert " JOIN " in meant
    assert EXPLANATION not in meant


def test_harmful_instructions_harm() -> None:
    assert told(*ALL, HARM[0], chance=0.3).meant(GOLD, failed=False).startswith("SELECT DISTINCT_name ")
    assert EXPLANATION in told(*ALL, HARM[1], chance=0.2).meant(GOLD, failed=False)


def test_instructions_stand_below_the_question_in_any_number_and_order() -> None:
    talks = list(
        demonstrations(300, noise=Noise(), rng=random.Random(3), is_held_out=is_held_out, instructed=True)
    )
    known = {*ALL, *BLAND, *HARM}
    numbers = [sum(line in known for line in talk[0]["content"].splitlines()) for talk in talks]
    assert {0, len(ALL)} <= set(numbers)
    assert len(set(numbers)) > 6
    seen: list[Sequence[str]] = [instructions(random.Random(seed)).lines for seed in range(100)]
    assert len({lines for lines in seen if set(lines) == set(ALL)}) > 1
