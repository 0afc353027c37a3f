"""APO: textual gradients and beam search: a model reads what went wrong under a prompt, says why, and rewrites it.

After ProTeGi (Pryzant et al. 2023, arXiv:2305.03495, algorithm 1): each round, every prompt of the beam is run on a
batch of feedback tasks, criticised (the gradient) and edited; the beam's next prompts are chosen among old and new
ones. What differs: critiques read whole conversations with their rewards, the best one beside the worst; bandits give
way to successive halving on one fixed set of tasks, so that whoever is compared was run on the same tasks; there is
no step of paraphrases; an agent may have several prompts, improved together or in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.feedback import examples, worst_and_best
from agl.algorithms.prompts.markup import markup_file, values_of
from agl.algorithms.prompts.ongoing import Search, side_by_side
from agl.algorithms.prompts.search import PromptSearch
from agl.algorithms.prompts.selection import most_in_halving
from agl.errors import ConfigError
from agl.metrics.base import Progress
from agl.types import Rollout


@dataclass(frozen=True, kw_only=True)
class APO(PromptSearch):
    """Automatic prompt optimization, beside what all searches have.

    Args:
        gradient_model: the model that criticises; null is ``optimizer_model``.
        edit_model: the model that rewrites; null is ``optimizer_model``.
        diversity_temperature: of critiques and rewrites; null leaves it to the model.
        gradient_batch_size: rollouts that one critique reads: the worst, and one of the best.
        feedback_batch_size: tasks on which each prompt of the beam is run in a round, for critiques to choose from.
        critiques_per_prompt: of each prompt of the beam in a round; its rewrites share them.
        beam_width: prompts kept from round to round.
        branch_factor: rewrites of each prompt of the beam in a round.
        beam_rounds: of critique, rewriting and selection.
        several_prompts: where an agent has several, rewrite all in a round (``together``) or one (``in_turn``).
        target_reward: the search ends when a prompt's mean reward on the selection tasks is this high; null is never.
        critique_file: POML of the question for a critique; null is agl's own (``algorithms/prompts/critique.poml``).
        rewrite_file: POML of the question for a rewrite; null is agl's own (``algorithms/prompts/rewrite.poml``).
    """

    gradient_model: str | None = None
    edit_model: str | None = None
    diversity_temperature: float | None = 1.0
    gradient_batch_size: int = 4
    feedback_batch_size: int = 8
    critiques_per_prompt: int = 1
    beam_width: int = 4
    branch_factor: int = 4
    beam_rounds: int = 3
    several_prompts: Literal["together", "in_turn"] = "in_turn"
    target_reward: float | None = None
    critique_file: str | None = None
    rewrite_file: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = ("gradient_batch_size", "feedback_batch_size", "critiques_per_prompt")
        for name in (*numbers, "beam_width", "branch_factor", "beam_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.diversity_temperature is not None and self.diversity_temperature < 0:
            raise ConfigError(f"diversity_temperature={self.diversity_temperature} must not be negative")
        if self.gradient_batch_size > self.feedback_batch_size:
            raise ConfigError(
                f"gradient_batch_size={self.gradient_batch_size} must not be above"
                f" feedback_batch_size={self.feedback_batch_size}, from which it is chosen"
            )
        self._files()

    def further(self) -> str:
        """Return the setting with which a resumed run searches on."""
        return f"beam_rounds={2 * self.beam_rounds}"

    def optimizer_sampling(self) -> dict[str, Any]:
        """Request parameters of critiques and rewrites."""
        return self.sampling_at(self.diversity_temperature)

    def most_rollouts(self, search: Search) -> int:
        """Return how many rollouts the search can take at most."""
        most, beam = len(search.selection), 1
        for _ in range(self.beam_rounds):
            children = beam * self.branch_factor
            most += beam * min(self.feedback_batch_size, len(search.feedback))
            most += most_in_halving(children, beam, keep=self.beam_width, num_tasks=len(search.selection))
            beam = min(self.beam_width, beam + children)
        return most

    async def search(self, search: Search) -> None:
        """Grow and prune the beam, round after round."""
        beam = [search.start]
        for number in range(1, self.beam_rounds + 1):
            if self._is_reached(search):
                search.context.metrics.note(
                    f"the search ends: algorithm.target_reward={self.target_reward:g} is reached"
                )
                return
            batch = self._feedback_batch(search, number)
            await search.score(beam, batch, phase=f"round {number}: feedback")
            search.context.metrics.progress(Progress(phase=f"round {number}: critique and rewriting"))
            grown = await side_by_side([self._children(search, parent, number, batch) for parent in beam])
            children = [child for some in grown for child in some]
            beam = await search.select([*beam, *children], self.beam_width)
            best = search.best
            search.context.metrics.note(
                f"round {number}: {len(children)} rewrites of {len(grown)} prompts; best: {search.scores_of(best)}"
                f" ({best.candidate_id})"
            )
            await search.report()

    def _is_reached(self, search: Search) -> bool:
        mean = search.scores_of(search.best).mean
        return self.target_reward is not None and mean is not None and mean >= self.target_reward

    def _feedback_batch(self, search: Search, number: int) -> list[int]:
        """The round's feedback tasks: the next ones, from the first again behind the last."""
        size = min(self.feedback_batch_size, len(search.feedback))
        first = (number - 1) * size
        return [search.feedback[(first + index) % len(search.feedback)] for index in range(size)]

    async def _children(
        self, search: Search, parent: Candidate, number: int, batch: Sequence[int]
    ) -> list[Candidate]:
        """The usable rewrites of one prompt of the beam."""
        rollouts = [search.scorer.rollout_of(parent, task) for task in batch]
        names = list(search.start.prompts)
        chosen = names if self.several_prompts == "together" else [names[(number - 1) % len(names)]]
        pairs = [(name, index) for name in chosen for index in range(self.critiques_per_prompt)]
        answers = await side_by_side(
            [
                self._critique(search, parent, name, rollouts, f"{number}-{parent.candidate_id}-{place}")
                for place, (name, _) in enumerate(pairs)
            ]
        )
        critiques = dict(zip(pairs, answers, strict=True))

        async def child(branch: int) -> Candidate | None:
            mine = {name: critiques[name, branch % self.critiques_per_prompt] for name in chosen}
            given = {name: critique for name, critique in mine.items() if critique is not None}
            place = f"{number}-{parent.candidate_id}-{branch}"
            return await self._rewritten(search, parent, given, place)

        children = await side_by_side([child(branch) for branch in range(self.branch_factor)])
        return [one for one in children if one is not None]

    async def _critique(
        self,
        search: Search,
        parent: Candidate,
        name: str,
        rollouts: Sequence[Rollout],
        place: str,
    ) -> str | None:
        """What is wrong with one prompt, by some of the rollouts; None where the model gave nothing."""
        shuffled = Random(f"{search.context.seed}/critique/{place}").sample(rollouts, len(rollouts))
        shown = await examples(search.context.store, worst_and_best(shuffled, self.gradient_batch_size))
        values = {**values_of(parent, name), "examples": [one.as_json() for one in shown]}
        messages = await search.questions.messages(self._files()[0], values)
        return await search.asked(f"critique-{place}", messages, model=self.gradient_model)

    async def _rewritten(
        self,
        search: Search,
        parent: Candidate,
        critiques: Mapping[str, str],
        place: str,
    ) -> Candidate | None:
        """The parent with the criticised prompts rewritten; None where no answer can be used."""

        async def answer(name: str, critique: str, index: int) -> str | None:
            messages = await search.questions.messages(
                self._files()[1], {**values_of(parent, name), "critique": critique}
            )
            return await search.asked(f"rewrite-{place}-{index}", messages, model=self.edit_model)

        answers = await side_by_side(
            [answer(name, critique, index) for index, (name, critique) in enumerate(critiques.items())]
        )
        child = parent
        for name, text in zip(critiques, answers, strict=True):
            if text is not None:
                child = search.taken(text, child, name, made_by="critique") or child
        return None if child is parent else replace(child, parent=parent.candidate_id)

    def _files(self) -> tuple[Path, Path]:
        return (
            markup_file(self.critique_file, "critique.poml", setting="critique_file"),
            markup_file(self.rewrite_file, "rewrite.poml", setting="rewrite_file"),
        )
