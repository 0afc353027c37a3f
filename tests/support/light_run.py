"""A whole run without a model, as a user's script: ``python light_run.py FOLDER ROUNDS TASKS [SECONDS]``.

Its engine answers from a table, its algorithm asks for rounds of rollouts, its agent calls the model twice and writes
down each of its executions in ``FOLDER/executed``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_engine import CountingEngine
from openai import AsyncOpenAI

from agl.algorithms.base import RunContext, RunResult
from agl.evaluation.counts import RolloutCounts, count_rollouts
from agl.evaluation.rollouts import run_rollouts
from agl.learners.base import Learner
from agl.metrics.settings import MetricSettings
from agl.runners.inline import InlineRunners
from agl.trainer import Trainer
from agl.types import LLM, Attempt, Rollout, RolloutConfig, RolloutRequest

RUN_ID = "light"


class Answering(CountingEngine):
    """Says the same to everything."""

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": "yes"}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


class Rounds:
    """Asks for one rollout of each training task in each round."""

    needs_learner = False

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        return None

    async def run(self, context: RunContext) -> RunResult:
        counts = RolloutCounts()
        for number in range(self.rounds):
            resources_id = await context.policy.resources_id(f"round-{number}", {})
            requests = [
                RolloutRequest(
                    task=task,
                    rollout_id=f"{context.run_id}-{number}-{place}",
                    run_id=context.run_id,
                    resources_id=resources_id,
                    config=RolloutConfig(
                        unresponsive_seconds=5.0, max_attempts=3, retry_on=("unresponsive",)
                    ),
                )
                for place, task in enumerate(context.train_tasks)
            ]
            counts += count_rollouts(await run_rollouts(context.store, requests))
            await context.store.add_metrics(context.run_id, number, {"rollouts": float(counts.enqueued)})
            context.metrics.note(f"round {number} is over")
        return RunResult(before=[], after=[], counts=counts, iterations=self.rounds)


async def agent(task: dict[str, Any], llm: LLM, rollout: Rollout, attempt: Attempt) -> float:
    """Ask twice, some time apart."""
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        for _ in range(2):
            await client.chat.completions.create(
                model=llm.model, messages=[{"role": "user", "content": "well?"}]
            )
            await asyncio.sleep(task["seconds"])
    line = f"{rollout.rollout_id} {attempt.attempt_id} {os.getpid()}\n"
    _write_down(Path(task["executed"]), line)
    return 1.0


def _write_down(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line)


def main(folder: str, rounds: str, tasks: str, seconds: str = "0.05") -> None:
    """Fit, and say what came out."""
    task = {"executed": f"{folder}/executed", "seconds": float(seconds)}
    trainer = Trainer(
        algorithm=Rounds(int(rounds)),
        inference=Answering(),
        runner=InlineRunners(max_concurrency=4, heartbeat_seconds=1.0),
        metrics=MetricSettings(console="plain"),
        run_dir=f"{folder}/{RUN_ID}",
        name=RUN_ID,
    )
    resume = (Path(folder) / RUN_ID).exists() and trainer.role != "runner"
    outcome = trainer.fit(agent, [task] * int(tasks), resume=resume)
    print("no outcome" if outcome is None else outcome.lines()[1])  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(*sys.argv[1:])
