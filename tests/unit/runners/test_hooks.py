"""Hooks: called around each attempt, by name, in order; what they raise."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agl
from agl.errors import ConfigError
from agl.runners.hooks import HookCalls, as_hook
from agl.types import RolloutConfig


class Notes(agl.Hook):
    def __init__(self, name: str = "") -> None:
        self.lines: list[str] = []
        self.name = name

    async def on_rollout_start(self, rollout: agl.Rollout) -> None:
        self.lines.append(f"{self.name}rollout start {rollout.task}")

    def on_trace_start(self, agent: Any, attempt: agl.Attempt) -> None:
        self.lines.append(f"{self.name}trace start {agent.name} {attempt.sequence_id}")

    def on_trace_end(self, outcome: Any) -> None:
        self.lines.append(f"{self.name}trace end {outcome.status} {outcome.reward}")

    async def on_rollout_end(self, outcome: Any, spans: list[agl.Span]) -> None:
        self.lines.append(f"{self.name}rollout end {outcome.status} {sorted({span.name for span in spans})}")


def solve(task: int) -> float:
    return float(task)


def broken(task: int) -> float:
    raise ZeroDivisionError(task)


async def forever(task: int) -> None:
    await asyncio.Event().wait()


async def test_hooks_are_called_around_the_attempt_in_order(run_tasks) -> None:
    notes = Notes()
    (rollout,) = await run_tasks(solve, [3], hooks=[notes])
    assert rollout.reward == 3
    assert notes.lines == [
        "rollout start 3",
        "trace start solve 1",
        "trace end succeeded 3.0",
        "rollout end succeeded ['agl.reward', 'agl.rollout']",
    ]


async def test_the_first_to_start_is_the_last_to_end(run_tasks) -> None:
    lines: list[str] = []
    hooks = [Notes("a "), Notes("b ")]
    for hook in hooks:
        hook.lines = lines
    await run_tasks(solve, [1], hooks=hooks)
    assert [line.split()[0] for line in lines] == ["a", "b", "a", "b", "b", "a", "b", "a"]


@pytest.mark.parametrize(("agent", "status"), [(broken, "failed"), (forever, "timeout")])
async def test_the_ends_are_called_however_the_attempt_ended(
    run_tasks, agent: Callable[..., Any], status: str
) -> None:
    notes = Notes()
    await run_tasks(agent, [3], config=RolloutConfig(timeout_seconds=0.05), hooks=[notes])
    assert [line for line in notes.lines if "end" in line] == [
        f"trace end {status} None",
        f"rollout end {status} ['agl.rollout']",
    ]


async def test_a_start_that_raises_fails_the_attempt_and_the_agent_is_not_run(run_tasks) -> None:
    ran: list[int] = []

    class NoSandbox(agl.Hook):
        def on_rollout_start(self) -> None:
            raise FileNotFoundError("no sandbox")

    (rollout,) = await run_tasks(lambda task: ran.append(task), [1], hooks=[NoSandbox()])
    assert (rollout.status, rollout.error.cause) == ("failed", "FileNotFoundError")
    assert "no sandbox" in rollout.error.traceback
    assert ran == []


async def test_an_end_that_raises_is_recorded_and_changes_nothing(run_tasks, spans_of, caplog) -> None:
    class Clumsy(agl.Hook):
        def on_trace_end(self) -> None:
            raise KeyError("trace")

        async def on_rollout_end(self) -> None:
            raise KeyError("rollout")

    notes = Notes()
    (rollout,) = await run_tasks(solve, [2], hooks=[notes, Clumsy()])
    assert (rollout.status, rollout.reward) == ("succeeded", 2)
    assert notes.lines[-1].startswith("rollout end succeeded")
    (root,) = [span for span in await spans_of(rollout) if span.name == "agl.rollout"]
    (event,) = root.events
    assert event.attributes["exception.type"] == "KeyError"
    assert event.attributes["agl.hook"].endswith("Clumsy.on_trace_end")
    assert "Clumsy.on_rollout_end failed on rollout" in caplog.text


async def test_a_reward_emitted_at_the_traces_end_is_the_last_word(run_tasks) -> None:
    class Judge(agl.Hook):
        async def on_trace_end(self, rollout: agl.Rollout) -> None:
            agl.emit_reward({"exact": rollout.task * 10.0, "reward": rollout.task + 0.5})

    (rollout,) = await run_tasks(solve, [2], hooks=[Judge()])
    assert rollout.reward == 2.5
    assert rollout.reward_dimensions == {"exact": 20.0, "reward": 2.5}


def test_a_hook_is_an_object_a_class_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import agl\nclass Mine(agl.Hook):\n    pass\nmine = Mine()\n")
    assert type(as_hook(f"{tmp_path}/mine.py:Mine")).__name__ == "Mine"
    assert as_hook(f"{tmp_path}/mine.py:mine") is as_hook(f"{tmp_path}/mine.py:mine")
    assert isinstance(as_hook(Notes), Notes)
    with pytest.raises(ConfigError, match="a float is not a hook"):
        as_hook("math:pi")


def test_a_hook_that_asks_for_what_there_is_not_is_refused_before_anything_runs() -> None:
    class Greedy(agl.Hook):
        def on_rollout_start(self, rollout: agl.Rollout, spans: list[agl.Span]) -> None: ...

    with pytest.raises(
        ConfigError, match="on_rollout_start takes spans; a hook is given agent, rollout, attempt"
    ):
        HookCalls([Greedy()])
