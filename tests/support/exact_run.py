"""A training run that is exact and light: a policy of ten numbers, its engine, its learner, an agent and its tasks.

No torch: a process starts soon. Everything follows from the seed by arithmetic in one order, so two runs are equal to
the last bit whoever executed their rollouts, in which batches and how often. ``recipe`` writes it down for ``agl
train`` and ``agl runner``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from answer_chunks import chunks_from_answer

import agl
from agl.errors import ConfigError, InferenceError
from agl.types import PolicyLoss, PolicyWeights, TrainingSample, Trajectory, UpdateReport

FIRST_DIGIT = ord("0")
NUM_DIGITS = 10
CALLS = 2
CALL_SECONDS = 3.0
"""The agent's patience with a call; a stopped server costs it no more."""
WEIGHTS = "weights.json"


RECIPE = """# @package _global_
defaults:
  - override /policy: null
  - override /learner: null
  - override /inference: null
  - override /algorithm: grpo
name: exact
trusted: [{folder}]
inference:
  _target_: {file}:ExactEngine
learner:
  _target_: {file}:ExactLearner
agent:
  target: {file}:digits
data:
  function: {file}:tasks
  arguments:
    journal: {journal}
    seconds: {seconds}
    judge: {judge}
adapter:
  agents: [""]
algorithm:
  tasks_per_iteration: 6
  group_size: 4
  evaluate_every: 2
  evaluate_greedy: false
  save_every: 2
  max_attempts: 100
  retry_on: [failed, timeout, unresponsive]
  retry_delay_seconds: 0.2
  retry_max_delay_seconds: 1
  unresponsive_seconds: {unresponsive}
metrics:
  console: plain
"""


def recipe(
    folder: Path,
    journal: Path,
    *,
    seconds: float = 0.3,
    judge: str | None = None,
    unresponsive_seconds: float = 2.0,
) -> list[str]:
    """Write the run's recipe into a folder of configs; return what the command line needs for it.

    Args:
        folder: made where it is missing.
        journal: file of the agent's own, see ``digits``.
        seconds: the longest that a rollout pauses before its end.
        judge: URL of a proxy whose model ``m`` is asked once a rollout.
        unresponsive_seconds: the longest silence of an attempt.
    """
    file = Path(__file__)
    text = RECIPE.format(
        folder=file.parent,
        file=file,
        journal=journal,
        seconds=seconds,
        judge="null" if judge is None else judge,
        unresponsive=unresponsive_seconds,
    )
    (folder / "recipe").mkdir(parents=True, exist_ok=True)
    (folder / "recipe" / "exact.yaml").write_text(text)
    return ["+recipe=exact", "--config-dir", str(folder)]


def calm_recipe(folder: Path, journal: Path) -> list[str]:
    """The same for a run that nobody disturbs: it takes no longer than it must, and has the same results."""
    return recipe(folder, journal, seconds=0.0, unresponsive_seconds=60.0)


def tasks(
    *, split: str, limit: int | None = None, journal: str, seconds: float = 0.3, judge: str | None = None
) -> list[dict[str, Any]]:
    """Return tasks; all of them ask for great digits, so that there is something to learn."""
    numbers = range(8) if split == "train" else range(100, 104)
    found = [{"number": number, "journal": journal, "seconds": seconds, "judge": judge} for number in numbers]
    return found[:limit]


@agl.rollout
async def digits(task: dict[str, Any], llm: agl.LLM, rollout: agl.Rollout, attempt: Any) -> dict[str, float]:
    """Ask for two digits; the reward is how great they are, of 1.

    It keeps a journal: a line when an attempt begins, and one when it ends, however it ends. ``attempt`` among the
    rewards is the number of the attempt that the rewards came from.
    """
    journal = Path(task["journal"])
    write_line(journal, "begin", attempt.attempt_id)
    try:
        messages = [{"role": "user", "content": f"task {task['number']}: a digit"}]
        said: list[int] = []
        # certificates take 50 ms of CPU to load, and there are none to verify
        async with httpx.AsyncClient(timeout=CALL_SECONDS, trust_env=False, verify=False) as client:
            for number in range(CALLS):
                answer = await _asked(client, llm.base_url, llm.api_key, llm.model, messages)
                said.append(int(answer))
                messages += [
                    {"role": "assistant", "content": answer},
                    {"role": "user", "content": "and another"},
                ]
                if number == 0 and task["judge"] is not None:
                    place = f"rollout/{rollout.rollout_id}/attempt/{attempt.attempt_id}/agent/judge/v1"
                    await _asked(client, f"{task['judge']}/{place}", "none", "m", messages)
        await asyncio.sleep(random.random() * task["seconds"])  # nothing but its report is left
    except BaseException as error:
        write_line(journal, type(error).__name__, attempt.attempt_id)
        raise
    write_line(journal, "end", attempt.attempt_id)
    return {"reward": sum(said) / (9.0 * CALLS), "attempt": float(attempt.sequence_id)}


async def _asked(client: httpx.AsyncClient, url: str, key: str | None, model: str, messages: Any) -> str:
    response = await client.post(
        f"{url}/chat/completions",
        json={"model": model, "messages": messages},
        headers={"authorization": f"Bearer {key}"},
    )
    response.raise_for_status()
    return response.json()["choices"][0]["message"]["content"]


def write_line(journal: Path, word: str, attempt_id: str) -> None:
    """Append one line in one write: processes share the file."""
    line = f"{word} {attempt_id} {os.getpid()} {time.time():.6f}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def probabilities(weights: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Return how likely each digit is."""
    exponentials = [math.exp(weight / temperature) for weight in weights]
    total = math.fsum(exponentials)
    return [each / total for each in exponentials]


class ExactEngine:
    """Answers with a digit, drawn by the request's seed and its messages."""

    def __init__(self) -> None:
        self._weights: Sequence[float] = [0.0] * NUM_DIGITS
        self._version = 0

    @property
    def model(self) -> str:
        return "policy"

    @property
    def policy_version(self) -> int:
        return self._version

    @property
    def trainable(self) -> bool:
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request.get("model") not in (None, self.model):
            raise InferenceError(f"there is no model {request['model']}", status=404)
        prompt = b"".join(f"{m['role']}:{m['content']}\n".encode() for m in request["messages"])
        prompt += b"assistant:"
        chances = probabilities(self._weights, float(request.get("temperature") or 1.0))
        draw = random.Random(f"{request.get('seed')}/{prompt.decode()}").random()
        digit = _digit_at(chances, draw)
        token = {"token": str(digit), "logprob": math.log(chances[digit]), "bytes": [FIRST_DIGIT + digit]}
        return {
            "id": f"chatcmpl-{hashlib.sha256(prompt).hexdigest()[:16]}",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": str(digit)},
                    "finish_reason": "stop",
                    "logprobs": {"content": [{**token, "top_logprobs": []}], "refusal": None},
                    "token_ids": [FIRST_DIGIT + digit],
                }
            ],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": 1,
                "total_tokens": len(prompt) + 1,
            },
            "prompt_token_ids": list(prompt),
            "policy_version": self._version,
        }

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        for chunk in chunks_from_answer(await self.complete_chat(request)):
            yield chunk

    async def load_weights(self, weights: PolicyWeights) -> None:
        assert weights.tensors is not None
        self._weights, self._version = list(weights.tensors["digits"]), weights.policy_version


def _digit_at(chances: Sequence[float], draw: float) -> int:
    reached = 0.0
    for digit, chance in enumerate(chances):
        reached += chance
        if draw < reached:
            return digit
    return NUM_DIGITS - 1


class ExactLearner:
    """The gradient of the policy's loss, one step an update.

    Args:
        learning_rate: of the step.
    """

    def __init__(self, *, learning_rate: float = 0.05) -> None:
        self._rate = learning_rate
        self._weights, self._version = [0.0] * NUM_DIGITS, 0

    @property
    def policy_version(self) -> int:
        return self._version

    def check(self, loss: PolicyLoss, *, needs_values: bool) -> None:
        if needs_values:
            raise ConfigError("algorithm: the exact learner has no critic")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        raise NotImplementedError(f"no algorithm of the tests asks for it: {len(trajectories)}")

    async def values(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        raise NotImplementedError(f"there is no critic: {len(trajectories)}")

    async def update(self, samples: Sequence[TrainingSample], loss: PolicyLoss) -> UpdateReport:
        if not samples:
            return UpdateReport(optimizer_steps=0, policy_version=self._version)
        chances = probabilities(self._weights)
        gradient = [0.0] * NUM_DIGITS
        for sample in samples:
            for token, mask, advantage in zip(
                sample.token_ids, sample.loss_mask, sample.advantages, strict=True
            ):
                for digit in range(NUM_DIGITS) if mask else ():
                    gradient[digit] += advantage * ((digit == token - FIRST_DIGIT) - chances[digit])
        self._weights = [
            weight + self._rate * each for weight, each in zip(self._weights, gradient, strict=True)
        ]
        self._version += 1
        metrics = {"gradient": math.fsum(abs(each) for each in gradient)}
        return UpdateReport(optimizer_steps=1, policy_version=self._version, metrics=metrics)

    async def weights(self) -> PolicyWeights:
        return PolicyWeights(policy_version=self._version, tensors={"digits": list(self._weights)})

    async def save(self, folder: Path) -> None:
        (folder / WEIGHTS).write_text(json.dumps([self._version, self._weights]))

    async def load(self, folder: Path) -> None:
        self._version, self._weights = json.loads((folder / WEIGHTS).read_text())

    async def save_policy(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / WEIGHTS).write_text(json.dumps(self._weights))
