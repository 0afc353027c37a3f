"""The optimizer's part of a scripted model: it criticises and rewrites prompts, as well as the tables below say.

It looks for habits that were not kept in the transcripts it is shown, names one or two, and writes instructions that
ask for them: mostly good ones, sometimes useless or harmful.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

ASKED = 0.97
"""The part of the tasks on which a habit is kept once an instruction asks for it."""
FORGETFUL_WORDS, FORGETFUL = 200, 0.8
"""In a prompt of more words than these an instruction is kept on this part of the tasks only."""
MISREAD = 0.15
"""Critiques that name nothing that was seen."""
SECOND = 0.5
"""Critiques that name a second habit, where two were not kept."""
VAGUE, HARMFUL, CARELESS = 0.2, 0.12, 0.05
"""Rewrites that only seem to address a critique; that add a harmful line; that lose the placeholder."""
NUM_RANDOM = 2
"""Lines that a rewrite without a critique adds, drawn from all advice."""
IMPERSONAL = "The tone of the answers is impersonal, and the prompt says too little about the company."
GIVEN_CRITIQUE = "What is wrong with it"
"""The heading of a critique in a question for a rewrite."""


@dataclass(frozen=True, slots=True)
class Habit:
    """One thing that makes answers right.

    Args:
        asked_for: what an instruction must say (a regular expression, case ignored).
        unasked: the part of the tasks on which it is kept without an instruction.
        complaint: how the optimizer says that it was not kept.
        advice: an instruction that asks for it.
    """

    asked_for: str
    unasked: float
    complaint: str
    advice: str

    def is_kept(self, prompt: str, chance: float) -> bool:
        """Whether it is kept under a prompt on a task whose number from 0 to 1 is this."""
        rate = self.unasked
        if re.search(self.asked_for, prompt, re.IGNORECASE):
            rate = FORGETFUL if len(prompt.split()) > FORGETFUL_WORDS else ASKED
        return chance < rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Answers questions for critiques and rewrites.

    Args:
        habits: all that the scripted agent may lack, by name.
        not_kept: which of them were not kept in the transcripts in a text, how often.
        bland: instructions that change nothing.
        harm: instructions that make answers worse.
        placeholder: what a careless rewrite loses, and what it writes in its place.
    """

    habits: Mapping[str, Habit]
    not_kept: Callable[[str], Counter[str]]
    bland: Sequence[str]
    harm: Sequence[str]
    placeholder: tuple[str, str]

    def answer(self, text: str, rng: Random) -> str:
        """Return the answer to a question; one with a prompt in it is for a rewrite, any other for a critique."""
        prompt = _between(text, r"<prompt>\n(.*?)\n</prompt>") or _between(text, r"```\w*\n(.*?)\n```")
        found = self.not_kept(text)
        if prompt is None:
            return self._critique(found, rng)
        if found:  # transcripts and prompt in one question: critique and rewrite in one go
            critique = self._critique(found, rng)
            return f"{critique}\n\n<prompt>\n{self._rewrite(prompt, critique, rng)}\n</prompt>"
        return f"<prompt>\n{self._rewrite(prompt, text, rng)}\n</prompt>"

    def _critique(self, found: Counter[str], rng: Random) -> str:
        if not found or rng.random() < MISREAD:
            return IMPERSONAL
        names = sorted(found, key=lambda name: (-found[name], rng.random()))
        named = names[: 2 if rng.random() < SECOND else 1]
        return "\n".join(f"{self.habits[name].complaint} The prompt must forbid it." for name in named)

    def _rewrite(self, prompt: str, critique: str, rng: Random) -> str:
        named = [habit for habit in self.habits.values() if habit.complaint in critique]
        lines = [rng.choice(self.bland) if rng.random() < VAGUE else habit.advice for habit in named]
        if not named and GIVEN_CRITIQUE not in critique and IMPERSONAL not in critique:
            all_advice = [*(habit.advice for habit in self.habits.values()), *self.bland, *self.harm]
            lines = rng.sample(all_advice, NUM_RANDOM)
        elif not named:
            lines = [rng.choice(self.bland)]
        if rng.random() < HARMFUL:
            lines.append(rng.choice(self.harm))
        new = [line for line in lines if line not in prompt]
        rewritten = "\n".join([prompt.rstrip(), *new]) if new else f"{prompt.rstrip()}\nThank you."
        return rewritten.replace(*self.placeholder) if rng.random() < CARELESS else rewritten


def _between(text: str, pattern: str) -> str | None:
    found = re.search(pattern, text, re.DOTALL)
    return found.group(1) if found else None
