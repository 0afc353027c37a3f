"""Feedback: rollouts as the model that criticises a prompt reads them: what was said, and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agl.adapters.transcript import messages_from_spans
from agl.algorithms.prompts.scoring import is_bad
from agl.algorithms.sampling import READ_AT_ONCE
from agl.evaluation.rollouts import spans_of_rollout
from agl.store.base import LightningStore
from agl.types import Rollout, Span
from agl.types.attributes import MESSAGE_BODY, MESSAGE_SPAN

MAX_CHARACTERS = 12_000
"""Of one rollout's transcript: a critique reads several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One rollout under a prompt.

    Args:
        reward: None where there is none.
        outcome: in words: the reward, or why there is none.
        transcript: the conversation, with what the agent emitted as messages.
    """

    reward: float | None
    outcome: str
    transcript: str

    def as_json(self) -> dict[str, Any]:
        """Return it as POML files take it."""
        return {"reward": self.reward, "outcome": self.outcome, "transcript": self.transcript}


async def examples(
    store: LightningStore, rollouts: Sequence[Rollout], *, max_characters: int = MAX_CHARACTERS
) -> list[Example]:
    """Read finished rollouts out of the store."""
    reading = asyncio.Semaphore(READ_AT_ONCE)

    async def example(rollout: Rollout) -> Example:
        async with reading:
            spans = await spans_of_rollout(store, rollout.rollout_id)
        return Example(
            reward=None if is_bad(rollout) else rollout.reward,
            outcome=_outcome(rollout),
            transcript=shortened(transcript(spans), max_characters),
        )

    return await asyncio.gather(*map(example, rollouts))


def worst_and_best(rollouts: Sequence[Rollout], number: int) -> list[Rollout]:
    """Return so many rollouts that show what goes wrong and what works: the worst, and one of the best.

    Failures come first, then low rewards; equals in the order given. Where all are equal, the first are taken.
    """

    def rank(rollout: Rollout) -> tuple[bool, float]:
        return (not is_bad(rollout), 0.0 if is_bad(rollout) else rollout.reward or 0.0)

    order = sorted(rollouts, key=rank)
    if len(order) <= number or number == 1 or rank(order[0]) == rank(order[-1]):
        return order[:number]
    return [*order[: number - 1], max(rollouts, key=rank)]


def transcript(spans: Sequence[Span]) -> str:
    """Return the conversation of one attempt, a message a paragraph, then what the agent emitted as messages."""
    said = [_message(message) for message in messages_from_spans(spans)]
    emitted = [
        f"note: {span.attributes.get(MESSAGE_BODY, '')}" for span in spans if span.name == MESSAGE_SPAN
    ]
    return "\n\n".join([*said, *emitted])


def shortened(text: str, max_characters: int) -> str:
    """Return the text without its middle where it is too long: what was asked and how it ended matter most."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _outcome(rollout: Rollout) -> str:
    if rollout.status != "succeeded":
        error = rollout.error
        return f"failed: {error.cause}: {error.message}" if error else "failed"
    if rollout.reward is None:
        return "gave no reward"
    others = {name: value for name, value in rollout.reward_dimensions.items() if value != rollout.reward}
    detail = "".join(f", {name} {value:g}" for name, value in others.items())
    return f"reward {rollout.reward:g}{detail}"


def _message(message: Mapping[str, Any]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    words = content if isinstance(content, str) else json.dumps(content) if content else ""
    called = [
        f"calls {call['function'].get('name')}({call['function'].get('arguments')})"
        for call in calls or ()
        if isinstance(call.get("function"), dict)
    ]
    return f"{message.get('role', '?')}: " + "\n".join(part for part in (words, *called) if part)
