"""A policy small enough to train in milliseconds, and samples for it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_policies import word_tokenizer, write_llama

from agl.learners.torch.learner import TorchLearner
from agl.types.policy import Policy
from agl.types.sample import TrainingSample, Trajectory

WORDS = ["<pad>", "<s>", "</s>", *(f"w{index}" for index in range(17))]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def _make_policy(folder: Path, *, tied: bool) -> Policy:
    write_llama(
        folder,
        word_tokenizer(TEMPLATE, words=WORDS),
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    return Policy(path=str(folder), device="cpu")


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return _make_policy(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture(scope="session")
def untied_policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return _make_policy(tmp_path_factory.mktemp("untied"), tied=False)


@pytest.fixture(scope="session")
def plain_model(policy: Policy) -> Any:
    """The policy as transformers alone loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(policy.path, dtype=torch.float32).eval()


Open = Callable[..., Any]


@pytest.fixture
def opened(policy: Policy) -> Open:
    """Return an open learner of the small policy: ``async with opened(critic="head") as learner``."""

    @asynccontextmanager
    async def open_learner(policy: Policy = policy, **settings: Any) -> AsyncIterator[TorchLearner]:
        settings = {"num_threads": 1, "warmup_steps": 0, **settings}
        async with TorchLearner(policy, **settings) as learner:
            yield learner

    return open_learner


@pytest.fixture(scope="session")
def full_logprobs() -> Callable[..., list[float]]:
    return _full_logprobs


@pytest.fixture(scope="session")
def make_trajectories() -> Callable[..., list[Trajectory]]:
    return _make_trajectories


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[TrainingSample]]:
    return _make_samples


def _full_logprobs(model: Any, ids: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Each token's logprob given those before it, by a forward of the whole sequence alone; 0.0 for the first."""
    with torch.no_grad():
        logits_TV = model(torch.tensor([list(ids)])).logits[0].double()
    logprobs_TV = (logits_TV[:-1] / temperature).log_softmax(-1)
    return [0.0, *(float(line_V[target]) for line_V, target in zip(logprobs_TV, ids[1:], strict=True))]


def _make_trajectories(seed: int = 0, count: int = 9, *, temperature: float = 1.0) -> list[Trajectory]:
    """Sequences of several lengths; every other one has two calls with a stretch between that was not sampled."""
    rng = random.Random(seed)
    trajectories: list[Trajectory] = []
    for index in range(count):
        prompt, answer = rng.randint(1, 6), rng.randint(1, 8)
        mask = [0] * prompt + [1] * answer
        if index % 2:
            mask += [0] * rng.randint(1, 3) + [1] * rng.randint(1, 4) + [0]
        trajectories.append(
            Trajectory(
                rollout_id=f"r{index // 2}",
                agent=None,
                token_ids=[rng.randrange(len(WORDS)) for _ in mask],
                loss_mask=mask,
                logprobs=[0.0] * len(mask),
                temperature=temperature,
                policy_version=0,
                call_ends=[prompt + answer],
                call_rewards=[None],
            )
        )
    return trajectories


def _make_samples(
    old_logprobs: Sequence[Sequence[float]],
    trajectories: Sequence[Trajectory],
    *,
    seed: int = 0,
    with_returns: bool = False,
) -> list[TrainingSample]:
    """Samples with random advantages (and returns)."""
    rng = random.Random(seed)
    samples: list[TrainingSample] = []
    for trajectory, logprobs in zip(trajectories, old_logprobs, strict=True):
        advantages = [rng.gauss(0, 1) for _ in trajectory.token_ids]
        samples.append(
            TrainingSample(
                rollout_id=trajectory.rollout_id,
                token_ids=trajectory.token_ids,
                loss_mask=trajectory.loss_mask,
                old_logprobs=logprobs,
                advantages=advantages,
                temperature=trajectory.temperature,
                returns=[rng.random() for _ in advantages] if with_returns else None,
                old_values=[0.0 for _ in advantages] if with_returns else None,
            )
        )
    return samples
