"""Random search: rewrites of the first prompts by a model that sees no results. The control of every other search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.markup import markup_file, values_of
from agl.algorithms.prompts.ongoing import Search, side_by_side
from agl.algorithms.prompts.search import PromptSearch
from agl.algorithms.prompts.selection import most_in_halving
from agl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RandomSearch(PromptSearch):
    """Rewrites without critiques, chosen by the same halving on the same tasks as in other searches.

    Args:
        diversity_temperature: of the rewrites; null leaves it to the model.
        rounds: of rewriting and selection.
        rewrites_per_round: all of the prompts that the run begins with; of several prompts one a round, in turn.
        rewrite_file: POML of the question; null is agl's own (``algorithms/prompts/rewrite.poml``, without a critique).
    """

    diversity_temperature: float | None = 1.0
    rounds: int = 3
    rewrites_per_round: int = 12
    rewrite_file: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rounds", "rewrites_per_round"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.diversity_temperature is not None and self.diversity_temperature < 0:
            raise ConfigError(f"diversity_temperature={self.diversity_temperature} must not be negative")
        markup_file(self.rewrite_file, "rewrite.poml", setting="rewrite_file")

    def further(self) -> str:
        """Return the setting with which a resumed run searches on."""
        return f"rounds={2 * self.rounds}"

    def optimizer_sampling(self) -> dict[str, Any]:
        """Request parameters of the rewrites."""
        return self.sampling_at(self.diversity_temperature)

    def most_rollouts(self, search: Search) -> int:
        """Return how many rollouts the search can take at most."""
        num_tasks = len(search.selection)
        return num_tasks + self.rounds * most_in_halving(
            self.rewrites_per_round, 1, keep=1, num_tasks=num_tasks
        )

    async def search(self, search: Search) -> None:
        """Rewrite the first prompts and keep the best, round after round."""
        names = list(search.start.prompts)
        for number in range(1, self.rounds + 1):
            name = names[(number - 1) % len(names)]
            rewrites = await self._rewrites(search, name, number)
            await search.select([search.best, *rewrites], 1)
            best = search.best
            search.context.metrics.note(
                f"round {number}: {len(rewrites)} rewrites; best: {search.scores_of(best)} ({best.candidate_id})"
            )
            await search.report()

    async def _rewrites(self, search: Search, name: str, number: int) -> list[Candidate]:
        file = markup_file(self.rewrite_file, "rewrite.poml", setting="rewrite_file")
        messages = await search.questions.messages(file, {**values_of(search.start, name), "critique": ""})
        rewrites = await side_by_side(
            [
                search.rewritten(
                    f"rewrite-{number}-{index}", messages, search.start, name, made_by="random rewrite"
                )
                for index in range(self.rewrites_per_round)
            ]
        )
        return [one for one in rewrites if one is not None]
