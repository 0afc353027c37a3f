"""Learner and engine of the Tinker service, by the SDK itself over HTTP, against machines of our own that truly train."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tinker_service import KEY, TinkerMachines, tinker_machines
from tiny_policies import word_tokenizer, write_llama
from transformers import AutoModelForCausalLM

from agl.errors import CheckpointError, ConfigError, InferenceError, RunStoppedError
from agl.inference.base import Engine
from agl.inference.tinker import TinkerEngine
from agl.inference.tinker_service import TinkerServiceError
from agl.learners.base import Learner, ReadsChats
from agl.learners.tinker.learner import TinkerLearner
from agl.types import LikelihoodLoss, Policy, PolicyLoss, PolicyWeights, TrainingSample, Trajectory

WORDS = ["<pad>", "<s>", "</s>", "yes", "no", *(f"w{index}" for index in range(15))]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
ASKED = {"messages": [{"role": "user", "content": "w1 w2"}], "max_tokens": 8, "logprobs": True}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = write_llama(
        tmp_path_factory.mktemp("policy"),
        word_tokenizer(TEMPLATE, words=WORDS),
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    return Policy(path=str(folder))


@pytest.fixture
def machines(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerMachines]:
    with tinker_machines({policy.path: 64}) as machines:
        monkeypatch.setenv("TINKER_BASE_URL", machines.url)
        monkeypatch.setenv("TINKER_API_KEY", KEY)
        yield machines


def learner_of(policy: Policy, **settings: Any) -> TinkerLearner:
    return TinkerLearner(policy, **{"rank": 8, "learning_rate": 0.01} | settings)


def trajectory(number: int, **changes: Any) -> Trajectory:
    plain = Trajectory(
        rollout_id=f"r{number}",
        agent=None,
        token_ids=[5 + number % 9, 6, 3, 7, 4, 2],
        loss_mask=[0, 0, 1, 0, 1, 1],
        logprobs=[0.0] * 6,
        temperature=1.0,
        policy_version=0,
        call_ends=[6],
        call_rewards=[None],
    )
    return replace(plain, **changes)


def sample_of(one: Trajectory, old: list[float] | None = None, advantage: float = 1.0) -> TrainingSample:
    return TrainingSample(
        rollout_id=one.rollout_id,
        token_ids=one.token_ids,
        loss_mask=one.loss_mask,
        old_logprobs=old,
        advantages=[advantage] * len(one.token_ids),
    )


def plain_logprobs(policy: Policy, token_ids: list[int]) -> list[float]:
    """By transformers alone: of each token but the first."""
    model: Any = AutoModelForCausalLM.from_pretrained(policy.path, dtype=torch.float32)
    ids = torch.tensor([token_ids])
    with torch.no_grad():
        lines = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    return lines.gather(1, ids[0, 1:, None])[:, 0].tolist()


async def test_they_are_a_learner_and_an_engine(policy: Policy, machines: TinkerMachines) -> None:
    assert isinstance(learner_of(policy), Learner)
    assert isinstance(learner_of(policy), ReadsChats)
    assert isinstance(TinkerEngine(policy), Engine)


async def test_logprobs_are_the_base_models_until_the_first_step(
    policy: Policy, machines: TinkerMachines
) -> None:
    one = trajectory(0)
    silent = trajectory(1, loss_mask=[0] * 6)
    async with learner_of(policy) as learner:
        lines = await learner.logprobs([silent, one])
    expected = [0.0, *plain_logprobs(policy, list(one.token_ids))]
    assert lines[0] == [0.0] * 6
    assert lines[1] == pytest.approx(
        [number * mask for number, mask in zip(expected, one.loss_mask, strict=True)], abs=1e-4
    )
    assert machines.runs[next(iter(machines.runs))].model.num_gradients == 0
