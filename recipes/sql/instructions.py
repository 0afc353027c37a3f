"""Instructions below a question, and a demonstrator who obeys them: for the policy that prompts can improve.

The habits are those of the scripted model (`script.py`): each is kept in some conversations, and in nearly all of those
that ask for it. A policy that learned from such demonstrations does what its prompt says, as far as it learned it.
"""

import random
import re
from dataclasses import dataclass, field, replace
from functools import cached_property

from .script import BLAND, GUESSES, GUESSING, HABITS, HARM, RAMBLES, RAMBLING, SPOILS

BARE, FULL = 0.2, 0.25
"""The parts of the conversations without instructions, and with all that ask for habits."""
UNASKED = 0.2
"""How often this demonstrator keeps a habit that nobody asked for, beside the scripted model."""


@dataclass(frozen=True)
class Told:
    """The instructions of one conversation, and what comes of them.

    Args:
        lines: below the question.
        rng: decides which habits are kept.
    """

    lines: tuple[str, ...]
    rng: random.Random = field(repr=False)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The habits of this conversation."""
        prompt = "\n".join(self.lines)
        habits = {name: replace(habit, unasked=UNASKED * habit.unasked) for name, habit in HABITS.items()}
        kept = {name for name, habit in habits.items() if habit.is_kept(prompt, self.rng.random())}
        if re.search(RAMBLES, prompt, re.IGNORECASE) and self.rng.random() < RAMBLING:
            kept.discard("format")
        if re.search(GUESSES, prompt, re.IGNORECASE) and self.rng.random() < GUESSING:
            kept.add("guess")
        return frozenset(kept)

    @property
    def repairs(self) -> bool:
        """Whether a query that failed is corrected, rather than repeated."""
        return "repair" in self.kept

    def meant(self, gold: str, *, failed: bool) -> str:
        """The query as the demonstrator means it; after an error without what caused most of them."""
        kept = self.kept | {"format", "join"} if failed else self.kept
        for name, spoil in SPOILS.items():
            if name not in kept:
                gold = spoil(gold)
        return re.sub(r"(?<=SELECT )(\w+)", r"\1_name", gold) if "guess" in kept and not failed else gold


def instructions(rng: random.Random) -> Told:
    """Instructions in random order: none, all that help, or some; idle and harmful ones now and then among them."""
    kind = rng.random()
    share = 0.0 if kind < BARE else 1.0 if kind < BARE + FULL else rng.random()
    lines = [habit.advice for habit in HABITS.values() if rng.random() < share]
    if kind >= BARE / 2:  # one half of the bare ones has nothing at all
        lines += [line for line in BLAND if rng.random() < 0.06]
        lines += [line for line in HARM if rng.random() < 0.08]
    rng.shuffle(lines)
    return Told(tuple(lines), rng)
