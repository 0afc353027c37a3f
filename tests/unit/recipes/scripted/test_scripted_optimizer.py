"""The scripted optimizer criticises and rewrites as well as its tables say."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from scripted_recipe.optimizer import FORGETFUL_WORDS, IMPERSONAL, Habit, Optimizer

HABITS = {
    "loud": Habit(r"loud", 0.2, "It whispers.", "Speak loudly."),
    "slow": Habit(r"slow", 0.4, "It hurries.", "Speak slowly."),
}


def not_kept(text: str) -> Counter[str]:
    return Counter({name: text.count(f"[{name}]") for name in HABITS if f"[{name}]" in text})


OPTIMIZER = Optimizer(
    habits=HABITS,
    not_kept=not_kept,
    bland=("Be nice.",),
    harm=("Shout nonsense.",),
    placeholder=("{task}", "the task"),
)
CRITIQUE = "# The prompt under test\nSay {task}\n# Transcript 1\n[loud] [loud] [slow]\n# Your critique"
REWRITE = "<prompt>\nSay {task}\n</prompt>\n# What is wrong with it\nIt whispers.\n# Your rewrite"
REFLECT = "<prompt>\nSay {task}\n</prompt>\n# Transcript 1\n[slow]\n# Your reflection"
BLIND = "<prompt>\nSay {task}\n</prompt>\n# Your rewrite"


def answers(question: str, number: int = 400) -> list[str]:
    return [OPTIMIZER.answer(question, Random(seed)) for seed in range(number)]


@pytest.mark.parametrize(
    ("prompt", "rate"),
    [("Say it.", 0.2), ("Say it loudly.", 0.97), ("loud " * (FORGETFUL_WORDS + 1), 0.8)],
)
def test_a_habit_is_kept_on_the_stated_part_of_the_tasks(prompt: str, rate: float) -> None:
    kept = [HABITS["loud"].is_kept(prompt, number / 1000) for number in range(1000)]
    assert sum(kept) == pytest.approx(1000 * rate, abs=1)


def test_critiques_name_what_was_seen_most_and_sometimes_misread() -> None:
    found = answers(CRITIQUE)
    assert 0.05 < sum(answer == IMPERSONAL for answer in found) / len(found) < 0.25
    named = [answer for answer in found if answer != IMPERSONAL]
    assert all(answer.startswith("It whispers.") for answer in named)
    assert 0.4 < sum("It hurries." in answer for answer in named) / len(named) < 0.6


def test_rewrites_ask_for_what_was_criticised_or_only_seem_to() -> None:
    found = answers(REWRITE)
    assert 0.7 < sum("Speak loudly." in answer for answer in found) / len(found) < 0.9
    assert 0.05 < sum("Shout nonsense." in answer for answer in found) / len(found) < 0.2
    assert 0.01 < sum("{task}" not in answer for answer in found) / len(found) < 0.1


def test_one_question_with_transcripts_gets_critique_and_rewrite() -> None:
    found = answers(REFLECT)
    assert all("<prompt>\nSay " in answer for answer in found)
    assert 0.55 < sum("Speak slowly." in answer for answer in found) / len(found) < 0.8
    assert not any("Speak loudly." in answer for answer in found)


def test_a_rewrite_without_evidence_is_a_guess_among_all_advice() -> None:
    found = answers(BLIND)
    for advice in ("Speak loudly.", "Speak slowly.", "Be nice.", "Shout nonsense."):
        assert 0.3 < sum(advice in answer for answer in found) / len(found) < 0.75
