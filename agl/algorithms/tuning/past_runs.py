"""Examples out of the stores of earlier runs, by the exact ids of the record where these are the policy's own."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agl.adapters.conversations import conversations_from_spans
from agl.adapters.trace import TracerTraceToTriplet
from agl.adapters.triplets import calls_of_agents, is_cut_off
from agl.algorithms.base import RunContext
from agl.algorithms.tuning.encoding import says, trajectories_of
from agl.algorithms.tuning.examples import Example, task_text
from agl.algorithms.tuning.settings import Tokens, TuningSettings
from agl.errors import ConfigError
from agl.evaluation.rollouts import ABANDONED, ASKED, REPLAY_OF, spans_of_rollout
from agl.learners.base import ChatTokens, Learner, ReadsChats
from agl.store.base import LightningStore
from agl.store.opening import store_to_read
from agl.store.paging import iter_rollouts
from agl.types import Rollout, RolloutQuery, Span, Trajectory
from agl.types import attributes as key

_NOT_AGENTS = frozenset({ASKED, ABANDONED})
READ_AT_ONCE = 8
"""Rollouts whose spans are in memory together."""


async def chat_tokens_of(learner: Learner, purpose: str) -> ChatTokens:
    """Return how the learner's policy writes conversations.

    Raises:
        ConfigError: the learner cannot say.
    """
    if not isinstance(learner, ReadsChats):
        raise ConfigError(f"{purpose} needs a learner that knows the policy's chat template: learner=torch")
    return await learner.chat_tokens()


async def examples_of_stores(
    settings: TuningSettings,
    adapter: TracerTraceToTriplet,
    learner: Learner,
    *,
    min_reward: float | None = None,
) -> tuple[list[Example], Counter[str]]:
    """Return the training rollouts of the stores that ended with a reward, and what could not be used, by cause.

    Args:
        settings: which stores, and how their tokens are read.
        adapter: whose agents, merging and longest sequence apply.
        learner: of the policy, in whose tokens the examples are.
        min_reward: rollouts with less are left out unread, as ``below_reward``.

    Raises:
        ConfigError: a store is not there, or tokens are to be made by a learner that cannot.
        StoreError: a store cannot be read.
    """
    if not settings.stores:
        return [], Counter()
    reader = await _reader(settings, adapter, learner)
    examples: list[Example] = []
    left_out: Counter[str] = Counter()
    for place in settings.stores:
        async with store_to_read(place, token=settings.store_token) as store:
            query = RolloutQuery(run_id=settings.store_run_id, mode="train", status=("succeeded",))
            rewarded, unusable = await _rewarded(_of_agents(store, query), min_reward)
            found, unread = await reader.examples(store, rewarded, place=place)
        examples += found
        left_out += unusable + unread
    return examples, left_out


async def examples_of_earlier_stages(
    settings: TuningSettings, context: RunContext, learner: Learner, *, min_reward: float
) -> tuple[list[Example], Counter[str]]:
    """Return the good training rollouts of the stages of this run that came before, and what could not be used.

    Args:
        settings: how tokens are read.
        context: of the stage that learns.
        learner: of the policy, in whose tokens the examples are.
        min_reward: rollouts with less are left out unread, as ``below_reward``.

    Raises:
        ConfigError: the run has no stages.
    """
    if not context.stage:
        raise ConfigError("earlier_stages=true: the run has no stages; it is for stages of algorithm=ladder")
    query = RolloutQuery(run_id=context.run_id, mode="train", status=("succeeded",))

    async def earlier() -> AsyncGenerator[Rollout]:
        async for rollout in _of_agents(context.store, query):
            if not rollout.rollout_id.startswith(f"{context.prefix}-"):
                yield rollout

    rewarded, left_out = await _rewarded(earlier(), min_reward)
    reader = await _reader(settings, context.adapter, learner)
    examples, unread = await reader.examples(context.store, rewarded, place=context.run_id)
    return examples, left_out + unread


async def _of_agents(store: LightningStore, query: RolloutQuery) -> AsyncGenerator[Rollout]:
    """The rollouts without questions that an algorithm asked a model itself, and without those that were run again."""
    async for rollout in iter_rollouts(store, query):
        if not rollout.metadata.keys() & _NOT_AGENTS:
            yield rollout


async def _reader(settings: TuningSettings, adapter: TracerTraceToTriplet, learner: Learner) -> _Reader:
    chat = None
    if isinstance(learner, ReadsChats) or settings.store_tokens == "template":
        chat = await chat_tokens_of(learner, f"store_tokens={settings.store_tokens}")
    return _Reader(adapter=adapter, chat=chat, tokens=settings.store_tokens)


async def _rewarded(
    rollouts: AsyncIterable[Rollout], min_reward: float | None
) -> tuple[list[Rollout], Counter[str]]:
    """The rollouts with enough reward, and why others are left out."""
    rewarded: list[Rollout] = []
    left_out: Counter[str] = Counter()
    async for rollout in rollouts:
        if REPLAY_OF in rollout.metadata:
            left_out["replay"] += 1
        elif rollout.reward is None:
            left_out["without_reward"] += 1
        elif min_reward is not None and rollout.reward < min_reward:
            left_out["below_reward"] += 1
        else:
            rewarded.append(rollout)
    return rewarded, left_out


def _example(rollout: Rollout, place: str, trajectories: Sequence[Trajectory]) -> Example:
    task = task_text(rollout.task)
    return Example(
        example_id=f"{place}#{rollout.rollout_id}",
        group_id=f"{place}#{rollout.group_id or task}",
        task=task,
        reward=rollout.reward,
        trajectories=trajectories,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Turns the spans of a rollout into the policy's tokens.

    Args:
        chat: None where the learner cannot tell how its policy writes; ids are then taken unchecked.
    """

    adapter: TracerTraceToTriplet
    chat: ChatTokens | None
    tokens: Tokens

    async def examples(
        self, store: LightningStore, rollouts: Sequence[Rollout], *, place: str
    ) -> tuple[list[Example], Counter[str]]:
        """Return an example of each rollout that can be read, and why others cannot."""
        reading = asyncio.Semaphore(READ_AT_ONCE)

        async def read(rollout: Rollout) -> Example | str:
            async with reading:
                spans = await spans_of_rollout(store, rollout.rollout_id)
                found = await asyncio.to_thread(self.trajectories, rollout.rollout_id, spans)
            return found if isinstance(found, str) else _example(rollout, place, found)

        read_ones = await asyncio.gather(*map(read, rollouts))
        examples = [one for one in read_ones if not isinstance(one, str)]
        return examples, Counter(one for one in read_ones if isinstance(one, str))

    def trajectories(self, rollout_id: str, spans: Sequence[Span]) -> list[Trajectory] | str:
        """Return the sequences, or why there are none."""
        if self.tokens != "template":
            adapted = self.adapter.adapt(spans)
            ours = self.chat is None or self._ids_are_ours(spans, self.chat)
            if adapted.trajectories and not adapted.dropped and ours:
                return adapted.trajectories
            if self.tokens == "record" or self.chat is None:
                return next(iter(adapted.dropped), "no_calls" if ours else "another_tokenizer")
        assert self.chat is not None
        if is_cut_off(spans, agents=self.adapter.agents):
            return "cut_off"
        conversations = conversations_from_spans(spans, name=rollout_id, agents=self.adapter.agents)
        found = trajectories_of(conversations, self.chat)
        return found if isinstance(found, str) else within(found, self.adapter.max_tokens)

    def _ids_are_ours(self, spans: Sequence[Span], chat: ChatTokens) -> bool:
        """Whether the recorded ids say, in the policy's tokens, what was recorded as text."""
        for span in calls_of_agents(spans, agents=self.adapter.agents):
            answered = span.attributes.get(key.OUTPUT_MESSAGES)
            calls = self.adapter.triplets([span])
            if not isinstance(answered, str) or not calls:
                continue
            message = cast("list[dict[str, Any]]", json.loads(answered))[0]
            ids = calls[0].response_ids
            if max(ids) >= len(chat.tokenizer) or not says(ids, message, chat, skip_special_tokens=True):
                return False
        return True


def within(trajectories: list[Trajectory], max_tokens: int | None) -> list[Trajectory] | str:
    """The trajectories, unless one is longer than what is trained."""
    if max_tokens is not None and any(len(one.token_ids) > max_tokens for one in trajectories):
        return "too_long"
    return trajectories
