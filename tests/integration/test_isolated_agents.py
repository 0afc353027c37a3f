"""Agents in processes of their own: they compute without holding up others, and a time limit really ends them."""

import asyncio
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import pytest
from command_runs import processes_with, run_tasks, until

from agl.agents.base import Assignment
from agl.agents.function import FunctionAgent
from agl.types import Attempt, Rollout

AGENTS = '''
import logging, multiprocessing, os, subprocess, sys, time, types
import agl

log = logging.getLogger("user")

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def compute(task):
    """Holds the interpreter for long."""
    end = time.perf_counter() + task
    while time.perf_counter() < end:
        pass
    return 1.0

def everything(task, llm=None, *, factor: int = 1):
    print("said", task)
    print("complained", file=sys.stderr)
    log.warning("logged %s", task)
    with agl.operation("think", input=task):
        agl.emit_message("inside")
    agl.emit_reward({"reward": task * factor, "pid": os.getpid()})

async def awaits(task):
    agl.emit_reward(task)

def fails(task):
    raise ValueError(f"no {task}") from KeyError("cause")

def fails_oddly(task):
    raise Odd("this", task)

def crashes(task):
    print("last words", file=sys.stderr, flush=True)
    os.abort()

def reads(task):
    return float(len(sys.stdin.read()))

def object_result(task):
    module = sys.modules["module_of_the_agent"] = types.ModuleType("module_of_the_agent")
    module.Strange = type("Strange", (), {"__module__": "module_of_the_agent"})
    return module.Strange()

def starts_others(task):
    subprocess.Popen(["bash", "-c", f"exec -a {task} sleep 1000"], start_new_session=True)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    child.start()
    subprocess.Popen(["bash", "-c", f"exec -a {task} sleep 1000"])
    time.sleep(1000)

class Stateful(agl.LitAgent):
    def __init__(self, log: str):
        self.log, self.served = log, 0

    def note(self, what):
        with open(self.log, "a") as file:
            file.write(f"{what}\\n")

    def setup(self):
        self.note("setup")

    async def rollout(self, task):
        self.served += 1
        return self.served

    async def teardown(self):
        self.note("teardown")

class NoSetup(agl.LitAgent):
    def setup(self):
        raise RuntimeError("no licence")

    def rollout(self, task):
        return 1
'''


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("isolated")
    (folder / "agents.py").write_text(AGENTS)

    def made(name: str, **settings) -> FunctionAgent:
        return FunctionAgent(f"{folder / 'agents.py'}:{name}", settings, isolation="process")

    return made


async def test_what_an_isolated_agent_says_emits_and_logs_is_its_attempts(agent):
    runs = await run_tasks(agent("everything", factor=2), [1, 2, 3], max_concurrency=2)
    for task, rollout in zip([1, 2, 3], runs.rollouts, strict=True):
        assert (rollout.status, rollout.reward, rollout.error) == ("succeeded", 2 * task, None)
        assert rollout.reward_dimensions["pid"] != os.getpid()
        index = task - 1
        assert runs.output(index) == f"said {task}\n"
        assert runs.output(index, "stderr") == "complained\n"
        assert f"WARNING user: logged {task}" in runs.output(index, "log")
        spans = {span.name: span for span in runs.spans[rollout.rollout_id]}
        assert spans["think"].trace_id == spans["agl.rollout"].trace_id
        assert spans["think"].parent_id == spans["agl.rollout"].span_id
        assert spans["agl.message"].parent_id == spans["think"].span_id
    assert len({rollout.reward_dimensions["pid"] for rollout in runs.rollouts}) <= 2


async def test_async_functions_work_too(agent):
    runs = await run_tasks(agent("awaits"), [0.5])
    assert runs.rollouts[0].reward == 0.5


async def test_code_that_computes_does_not_block_the_event_loop_and_a_time_limit_ends_it(agent):
    late = 0.0

    async def watch() -> None:
        nonlocal late
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.01)
            late = max(late, time.perf_counter() - begin)

    watching = asyncio.create_task(watch())
    name = "agl.agents.isolated"
    before = set(processes_with(name))
    runs = await run_tasks(agent("compute"), [1000, 1000], timeout_seconds=2.0)
    watching.cancel()
    assert [rollout.error.cause for rollout in runs.rollouts] == ["timeout", "timeout"]
    assert late < 1.0
    assert set(processes_with(name)) <= before


async def test_nothing_that_an_isolated_agent_started_is_left(agent):
    name = f"left-{secrets.token_hex(6)}"
    before = set(processes_with("agl.agents.isolated"))
    runs = await run_tasks(agent("starts_others"), [name], timeout_seconds=3)
    assert runs.rollouts[0].error.cause == "timeout"
    assert processes_with(name) == []
    assert set(processes_with("agl.agents.isolated")) <= before


async def test_an_exception_arrives_with_its_class_its_causes_and_where_it_was_raised(agent):
    runs = await run_tasks(agent("fails"), ["way", "luck"])
    error = runs.rollouts[0].error
    assert (error.cause, error.message) == ("ValueError", "no way")
    for part in (
        "agents.py",
        'raise ValueError(f"no {task}")',
        "KeyError: 'cause'",
        "in the isolated process",
    ):
        assert part in error.traceback
    odd = (await run_tasks(agent("fails_oddly"), [1])).rollouts[0].error
    assert (odd.cause, odd.message) == ("Odd", "this and 1")


async def test_a_crash_is_the_attempts_failure_and_the_next_attempt_gets_another_process(agent):
    runs = await run_tasks(agent("crashes"), [1, 2], max_concurrency=1)
    for rollout in runs.rollouts:
        assert rollout.error.cause == "IsolatedProcessError"
        assert "ended by itself (exit code -6); its standard error ends with: " in rollout.error.message
        assert "last words" in rollout.error.message


async def test_standard_input_is_empty_and_a_result_that_cannot_leave_is_named(agent):
    assert (await run_tasks(agent("reads"), [1])).rollouts[0].reward == 0
    error = (await run_tasks(agent("object_result"), [1])).rollouts[0].error
    assert error.cause == "IsolatedProcessError"
    assert "module_of_the_agent.Strange" in error.message
    assert "module_of_the_agent" not in sys.modules


async def test_a_class_is_set_up_once_a_process_which_is_reused(agent, tmp_path):
    log = tmp_path / "log"
    runs = await run_tasks(agent("Stateful", log=str(log)), [1, 2, 3], max_concurrency=1)
    assert [rollout.reward for rollout in runs.rollouts] == [1, 2, 3]
    assert log.read_text().split() == ["setup", "teardown"]


async def test_a_set_up_that_fails_is_told_by_the_attempt(agent):
    error = (await run_tasks(agent("NoSetup"), [1])).rollouts[0].error
    assert (error.cause, error.message) == ("RuntimeError", "no licence")


async def test_an_agent_that_no_runner_opened_ends_its_process_with_the_attempt(agent):
    before = set(processes_with("agl.agents.isolated"))
    rollout = Rollout(rollout_id="r1", task=0.5, created_at=1.0)
    attempt = Attempt(attempt_id="a1", rollout_id="r1", sequence_id=1, started_at=1.0, last_heartbeat_at=1.0)
    assert await agent("awaits").run(Assignment(rollout=rollout, attempt=attempt)) is None
    assert set(processes_with("agl.agents.isolated")) <= before


RUNNER = """
import asyncio, sys
from command_runs import run_tasks
from agl.agents.function import FunctionAgent
asyncio.run(run_tasks(FunctionAgent(sys.argv[1], isolation="process"), [sys.argv[2]]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_isolated_processes_end_with_their_runner(agent, number, tmp_path):
    name = f"left-{secrets.token_hex(6)}"
    target = agent("starts_others")._target
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNER, target, name, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: len(processes_with(f"{name} 1000")) >= 2)
        runner.send_signal(number)
        await asyncio.wait_for(runner.wait(), 10)
        await until(lambda: processes_with(name) == [], 5)
    finally:
        if runner.returncode is None:
            runner.kill()
            await runner.wait()
