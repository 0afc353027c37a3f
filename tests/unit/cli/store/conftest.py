"""A store file with two runs, and the command line in the test's folder."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from command_line import Agl
from typer.testing import CliRunner

from agl.cli.app import app
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest, Span


@pytest.fixture
def agl(in_folder: Path) -> Agl:
    """Run the command line in the test's folder; return exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return result.exit_code, result.stdout, result.stderr

    return run


@pytest.fixture
def two_runs(in_folder: Path) -> Path:
    """``store.sqlite``: run ``done`` has two finished rollouts of two spans, run ``open`` one rollout at work."""
    path = in_folder / "store.sqlite"

    async def fill() -> None:
        async with SqliteLightningStore(str(path)) as store:
            for run_id in ("done", "open"):
                await store.add_run(name=run_id, run_id=run_id)
            for number in range(2):
                held = await store.start_rollout(RolloutRequest(task=number, run_id="done"))
                key = {"rollout_id": held.rollout.rollout_id, "attempt_id": held.attempt.attempt_id}
                spans = [
                    Span(
                        span_id=f"{number:015x}{part}",
                        trace_id="a" * 32,
                        name="s",
                        start_time_ns=1,
                        attributes={"text": random.Random(f"{number}{part}").randbytes(100_000).hex()},
                        **key,
                    )
                    for part in range(2)
                ]
                await store.add_many_spans(spans)
                await store.update_attempt(*key.values(), status="succeeded", reward=1.0)
            await store.update_run("done", status="succeeded")
            await store.start_rollout(RolloutRequest(task=2, run_id="open"))

    asyncio.run(fill())
    return path
