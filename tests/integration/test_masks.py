"""What is trained is what was sampled: the samples of real rollouts, decoded and compared with what the agent saw.

Agent, HTTP proxy, engine, store, adapter, algorithm and learner are the real ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

import agl
from agl.adapters.trace import TracerTraceToTriplet
from agl.agents.function import as_agent
from agl.algorithms.ppo import PPO
from agl.algorithms.sampling import Batch, GroupRequest, sample_groups
from agl.inference.huggingface import load_tokenizer
from agl.inference.transformers import TransformersEngine
from agl.launch.local import Parts, running
from agl.learners.torch.learner import TorchLearner
from agl.proxy import LLMProxy
from agl.runners.inline import InlineRunners
from agl.store.sqlite import InMemoryLightningStore
from agl.types import Policy, RolloutConfig, TrainingSample

POLICY = Policy(path=str(Path(__file__).parents[2] / "recipes" / "sql" / "policy"), device="cpu")
END = "<|im_end|>"
QUESTIONS = ("How many rows?", "Which names?", "Try the café's naïve Ωs.", "List all.")
MAX_TOKENS = 12
"""Short enough that some answers end by themselves and some at the limit."""


@dataclass
class Seen:
    """What the agent of one rollout saw: its messages, and of each answer the text and how it ended."""

    messages: list[dict[str, str]] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    num_tokens: int = 0


@dataclass
class Conversations:
    """Sampled rollouts, what their agents saw, the samples made of them and the learner's logprobs of these."""

    seen: dict[str, Seen]
    batch: Batch
    samples: list[TrainingSample]
    learned: list[list[float]]


async def sampled(turns: int) -> Conversations:
    """Run an agent of so many turns on every question, four times, through the whole pipeline."""
    seen: dict[str, Seen] = {}

    @agl.rollout
    async def ask(task: str, llm: Any, rollout: Any) -> float:
        mine = seen[rollout.rollout_id] = Seen()
        async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
            for turn in range(turns):
                mine.messages.append({"role": "user", "content": task if turn == 0 else "Again."})
                reply = await client.chat.completions.create(model=llm.model, messages=mine.messages)
                text = reply.choices[0].message.content or ""
                mine.messages.append({"role": "assistant", "content": text})
                mine.answers.append((text, str(reply.choices[0].finish_reason)))
                mine.num_tokens += reply.usage.completion_tokens if reply.usage else 0
        return float(len(mine.messages[-1]["content"]) % 2)

    learner = TorchLearner(POLICY, critic="head", num_threads=1)
    async with InMemoryLightningStore() as store:
        parts = Parts(
            store=store,
            engine=TransformersEngine(POLICY, num_threads=1),
            learner=learner,
            proxy=LLMProxy(),
            runner=InlineRunners(),
            agent=as_agent(ask),
        )
        await store.add_run(name="masks", run_id="run")
        async with running(parts, run_id="run") as policy:
            batch, _ = await sample_groups(
                store,
                TracerTraceToTriplet(),
                [GroupRequest(group_id=f"run-{place}", task=text) for place, text in enumerate(QUESTIONS)],
                group_size=4,
                run_id="run",
                resources_id=await policy.resources_id(
                    "train", {"temperature": 1.0, "max_tokens": MAX_TOKENS}
                ),
                seed=0,
                config=RolloutConfig(timeout_seconds=60.0),
            )
            samples, _ = await PPO().credit(batch, learner)
            learned = await learner.logprobs([t for r in batch.rollouts for t in r.trajectories])
    return Conversations(seen=seen, batch=batch, samples=samples, learned=learned)


@pytest.fixture(scope="module", params=[1, 2], ids=["one turn", "two turns"])
def conversations(request: pytest.FixtureRequest) -> Conversations:
    return asyncio.run(sampled(request.param))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(POLICY)


def answers_of(sample: TrainingSample) -> list[list[int]]:
    """The stretches of ids under the mask."""
    stretches = groupby(zip(sample.token_ids, sample.loss_mask, strict=True), key=lambda pair: pair[1])
    return [[token for token, _ in pairs] for masked, pairs in stretches if masked]


def expected_text(text: str, finish_reason: str) -> str:
    """What was sampled when the agent saw this: the text, and the end token where the policy ended it."""
    return text + END if finish_reason == "stop" else text


def test_the_mask_covers_exactly_the_assistants_texts_and_their_end_tokens(
    conversations: Conversations, tokenizer: Any
) -> None:
    decoded: dict[str, list[str]] = {name: [] for name in conversations.seen}
    for sample in conversations.samples:
        decoded[sample.rollout_id] += [tokenizer.decode(ids) for ids in answers_of(sample)]
    expected = {
        name: [expected_text(*answer) for answer in seen.answers] for name, seen in conversations.seen.items()
    }
    assert len(decoded) == 16
    assert decoded == expected
    endings = {ending for seen in conversations.seen.values() for _, ending in seen.answers}
    assert endings == {"stop", "length"}


def test_as_many_tokens_are_trained_as_the_agent_was_told_were_sampled(conversations: Conversations) -> None:
    trained = dict.fromkeys(conversations.seen, 0)
    for sample in conversations.samples:
        trained[sample.rollout_id] += sum(sample.loss_mask)
    assert trained == {name: seen.num_tokens for name, seen in conversations.seen.items()}


def test_a_merged_sequence_is_the_whole_conversation(conversations: Conversations, tokenizer: Any) -> None:
    merged = 0
    for rollout in conversations.batch.rollouts:
        seen = conversations.seen[rollout.rollout_id]
        if len(rollout.trajectories) > 1 or seen.answers[-1][1] != "stop":
            continue  # an answer cut at its limit lacks the end token that the template writes
        whole = tokenizer.apply_chat_template(seen.messages, tokenize=False)
        assert tokenizer.decode(rollout.trajectories[0].token_ids) == whole.removesuffix("\n")
        assert len(rollout.trajectories[0].call_ends) == len(seen.answers)
        merged += 1
    assert merged > 0


def test_only_sampled_tokens_carry_credit(conversations: Conversations) -> None:
    for sample in conversations.samples:
        for mask, advantage in zip(sample.loss_mask, sample.advantages, strict=True):
            assert mask or advantage == 0.0
    assert any(any(sample.advantages) for sample in conversations.samples)


def test_the_learner_gives_every_sampled_token_the_engines_logprob(conversations: Conversations) -> None:
    """Before the first update, on CPU, within 1e-4."""
    gaps = [
        abs(engine - learner)
        for sample, learned in zip(conversations.samples, conversations.learned, strict=True)
        for mask, engine, learner in zip(sample.loss_mask, sample.old_logprobs, learned, strict=True)
        if mask
    ]
    assert len(gaps) == sum(seen.num_tokens for seen in conversations.seen.values())
    assert max(gaps) < 1e-4
