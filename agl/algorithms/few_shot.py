"""Few-shot selection: good conversations of training tasks, put into the prompt as demonstrations; the best set wins.

After the bootstrapped demonstrations of DSPy (Khattab et al. 2023, arXiv:2310.03714) and the search over sets of them
of MIPRO (Opsahl-Ong et al. 2024, arXiv:2406.11695), without proposals of new instructions: those are what other
searches make. What differs: sets are compared on the same selection tasks by successive halving.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from agl.adapters.transcript import messages_from_spans
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.feedback import shortened
from agl.algorithms.prompts.search import PromptSearch, Search, SearchEndedError
from agl.algorithms.prompts.selection import most_in_halving
from agl.errors import ConfigError, InvalidRequestError
from agl.evaluation.rollouts import spans_of_rollout
from agl.types import PromptTemplate

MAX_CHARACTERS = 3_000
"""Of one demonstration: it is read again in every call."""


@dataclass(frozen=True, kw_only=True)
class FewShot(PromptSearch):
    """Demonstrations from good transcripts, beside what all searches have. No model writes: only the agent runs.

    Args:
        demonstrations: conversations in a prompt.
        pool_size: feedback tasks that the first prompts are run on; the good ones are what sets are drawn from.
        good_reward: what a conversation must have earned to be shown.
        num_sets: drawn at random, and compared.
        caption: stands above each demonstration.
    """

    demonstrations: int = 3
    pool_size: int = 24
    good_reward: float = 1.0
    num_sets: int = 12
    caption: str = "Example of work well done:"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("demonstrations", "pool_size", "num_sets"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")

    def further(self) -> str:
        """Return the setting with which a resumed run searches on."""
        return f"num_sets={2 * self.num_sets}"

    def most_rollouts(self, search: Search) -> int:
        """Return how many rollouts the search can take at most."""
        num_tasks = len(search.selection)
        pool = min(self.pool_size, len(search.feedback))
        return num_tasks + pool + most_in_halving(self.num_sets, 1, keep=1, num_tasks=num_tasks)

    async def search(self, search: Search) -> None:
        """Gather good conversations, draw sets of them, and keep the set that helps most."""
        shown = await self._shown(search)
        if not shown:
            raise SearchEndedError(
                f"no rollout on {min(self.pool_size, len(search.feedback))} feedback tasks earned"
                f" algorithm.good_reward={self.good_reward:g}: there is nothing to show"
            )
        candidates = [self._candidate(search, shown, number) for number in range(self.num_sets)]
        usable = [one for one in candidates if one is not None]
        different = {one.candidate_id for one in usable}
        await search.select([search.best, *usable], 1)
        best = search.best
        search.context.metrics.note(
            f"{len(different)} different sets out of {len(shown)} good conversations; best: {search.scores_of(best)}"
            f" ({best.candidate_id})"
        )
        await search.report()

    async def _shown(self, search: Search) -> list[list[dict[str, Any]]]:
        """The conversations of the pool that earned enough, in the order of their tasks."""
        pool = search.feedback[: self.pool_size]
        await search.score([search.start], pool, phase="gathering demonstrations")
        rollouts = [search.scorer.rollout_of(search.start, task) for task in pool]
        good = [one for one in rollouts if one.reward is not None and one.reward >= self.good_reward]
        store = search.context.store
        found = [messages_from_spans(await spans_of_rollout(store, one.rollout_id)) for one in good]
        return [messages for messages in found if messages]

    def _candidate(
        self, search: Search, shown: Sequence[Sequence[Mapping[str, Any]]], number: int
    ) -> Candidate | None:
        """The first prompts with a set drawn for the number in one of them; None where it is no template."""
        rng = Random(f"{search.context.seed}/few-shot/{number}")
        drawn = rng.sample(shown, min(self.demonstrations, len(shown)))
        names = list(search.start.prompts)
        name = names[number % len(names)]
        prompt = search.start.prompts[name]
        text = with_demonstrations(prompt, drawn, caption=self.caption)
        try:
            fits = prompt.changed_to(text).placeholders == prompt.placeholders
        except InvalidRequestError:
            fits = False
        if not fits:
            search.refused["not_a_template"] += 1
            return None
        return search.start.changed(name, text, made_by="demonstrations")


def with_demonstrations(
    prompt: PromptTemplate, conversations: Sequence[Sequence[Mapping[str, Any]]], *, caption: str
) -> str:
    """Return the prompt's text with conversations in front, so that the task itself stays at the end."""
    shown = [f"{caption}\n{demonstration(prompt, one)}" for one in conversations]
    return "\n\n".join([*(_literal(prompt, text) for text in shown), prompt.template])


def demonstration(prompt: PromptTemplate, messages: Sequence[Mapping[str, Any]]) -> str:
    """Return a conversation as text; of a first message that the prompt made, only what filled its placeholders."""
    lines: list[str] = []
    for message in messages:
        role, words = message.get("role", "?"), _words(message)
        values = None if lines or role == "system" else filled_in(prompt, words)
        lines.append(f"{role}: {words}" if values is None else "\n".join(values))
    return shortened("\n".join(lines), MAX_CHARACTERS)


def filled_in(prompt: PromptTemplate, text: str) -> list[str] | None:
    """Return what stands in a text in place of an f-string prompt's placeholders; None where it is not made of it."""
    if prompt.engine != "f-string":
        return None
    parts = list(string.Formatter().parse(prompt.template))
    pattern = "".join(
        re.escape(before) + ("(.*)" if name is not None else "") for before, name, _, _ in parts
    )
    found = re.fullmatch(pattern, text, re.DOTALL)
    return None if found is None else list(found.groups())


def _words(message: Mapping[str, Any]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    words = content if isinstance(content, str) else json.dumps(content) if content else ""
    return "\n".join(part for part in (words, json.dumps(calls) if calls else "") if part)


def _literal(prompt: PromptTemplate, text: str) -> str:
    """The text as the prompt's engine writes it, with nothing in it that the engine would read."""
    if prompt.engine == "f-string":
        return text.replace("{", "{{").replace("}", "}}")
    if prompt.engine == "jinja2":
        return "{% raw %}" + text.replace("{% endraw %}", "") + "{% endraw %}"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    apart = re.sub(r"([{}])(?=\1)", r"\1 ", escaped)
    return f'<text whiteSpace="pre">{apart}</text>'
