"""IsolatedAgent: another agent's attempts in processes of their own, which a time limit really ends.

A process runs one attempt at a time and is kept for the next: starting one costs about 0.3 s of CPU time, and the
imports of the user's code. An attempt that is stopped takes its process with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from agl.agents import process_tree
from agl.agents.base import Agent, Assignment
from agl.agents.frames import (
    Done,
    Failed,
    Frame,
    Logged,
    Start,
    UnknownClassError,
    Work,
    framed,
    loaded_value,
    next_frame,
)
from agl.agents.programs import (
    GUARD_VARIABLE,
    TERM_SECONDS,
    OutputPipe,
    guarded,
    inherited_environment,
    program,
)
from agl.agents.threads import in_thread
from agl.errors import AgentError
from agl.tracing.context import AttemptContext, current_attempt, traceparent
from agl.tracing.kept import KeptBytes
from agl.tracing.output import record_output
from agl.types import Span

_MARK = "AGL_ISOLATED"
_MAX_STDERR_CHARS = 1_500
_LAST_FRAMES_SECONDS = 0.2
"""How long what an ended process wrote last may take through the event loop."""


class IsolatedProcessError(AgentError):
    """The process of an isolated agent ended by itself, or returned what cannot leave it."""


class ChildTraceback(Exception):  # noqa: N818 - names what it shows in a traceback
    """Where in the isolated process an exception was raised."""

    def __str__(self) -> str:
        return f"in the isolated process:\n{self.args[0]}"


class IsolatedAgent:
    """Runs an agent in child processes.

    Args:
        agent: can be pickled.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._guard: str | None = None
        self._idle: list[_Child] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return IsolatedAgent, (self._agent,)

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        return self._agent.name

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep processes for the attempts that follow; all end with the block, and with this process."""
        async with guarded() as self._guard:
            self._idle = []
            try:
                yield
            finally:
                idle, self._idle, self._guard = self._idle, None, None
                await asyncio.gather(*(child.retire() for child in idle))

    async def run(self, assignment: Assignment) -> object:
        """Run the attempt in a process, and return or raise what the agent does there.

        Raises:
            IsolatedProcessError: the process ended by itself, or returned what cannot leave it.
        """
        child = self._idle.pop() if self._idle else await _Child.started(self._agent, self._guard)
        try:
            result = await child.attempt(assignment, current_attempt())
        except BaseException:
            if not child.reusable:
                await child.end()
            else:
                await self._give_back(child)
            raise
        await self._give_back(child)
        return result

    async def _give_back(self, child: _Child) -> None:
        if self._idle is None:
            await child.retire()
        else:
            self._idle.append(child)


@dataclass(slots=True)
class _Child:
    """One process, with the pipes to it."""

    agent: Agent
    process: Process
    frames: asyncio.StreamReader
    stdout: OutputPipe
    stderr: OutputPipe
    stack: AsyncExitStack
    reusable: bool = False

    @classmethod
    async def started(cls, agent: Agent, guard: str | None) -> _Child:
        mark = secrets.token_hex(8)
        environment = {**inherited_environment(), _MARK: mark, "PYTHONUNBUFFERED": "1"}
        if guard is not None:
            environment[GUARD_VARIABLE] = guard
        async with AsyncExitStack() as stack:
            stdout, stderr = stack.enter_context(OutputPipe()), stack.enter_context(OutputPipe())
            reading, writing = os.pipe()
            frames = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(frames), os.fdopen(reading, "rb", 0)
            )
            stack.callback(transport.close)
            try:
                process = await stack.enter_async_context(
                    program(
                        [sys.executable, "-m", "agl.agents.isolated", str(writing)],
                        mark=f"{_MARK}={mark}",
                        environment=environment,
                        stdin=PIPE,
                        stdout=stdout.writing,
                        stderr=stderr.writing,
                        pass_fds=[writing],
                    )
                )
            finally:
                os.close(writing)
            stdout.started()
            stderr.started()
            child = cls(agent, process, frames, stdout, stderr, stack.pop_all())
        level = logging.getLogger().level
        await child._send(Start(agent=pickle.dumps(agent), path=list(sys.path), log_level=level))
        return child

    async def attempt(self, assignment: Assignment, attempt: AttemptContext | None) -> object:
        self.reusable = False
        self.stdout.kept, self.stderr.kept = KeptBytes(), KeptBytes()
        try:
            await self._send(Work(assignment=assignment, parent=traceparent()))
            answer = await self._answer(attempt)
        finally:
            self.stdout.drain()
            self.stderr.drain()
            if attempt is not None:
                record_output(attempt, "stdout", self.stdout.kept)
                record_output(attempt, "stderr", self.stderr.kept)
        mark = f"AGL_ATTEMPT_ID={assignment.attempt.attempt_id}"
        await in_thread(lambda: process_tree.kill_tree(mark), name="agl isolated leftovers")
        self.reusable = self.process.returncode is None
        if isinstance(answer, Failed):
            raise _error_of(answer) from ChildTraceback(answer.traceback)
        if attempt is not None:
            attempt.rewards.extend(answer.rewards)
        try:
            return loaded_value(answer.result)
        except UnknownClassError as error:
            raise IsolatedProcessError(
                f"{self.agent.name} returned an object of {error}, which its runner does not know; return plain data"
            ) from error

    async def _answer(self, attempt: AttemptContext | None) -> Done | Failed:
        exited = asyncio.ensure_future(self.process.wait())
        try:
            while (data := await self._next(exited)) is not None:
                frame: Frame = loaded_value(data)
                if isinstance(frame, Done | Failed):
                    return frame
                if attempt is not None:
                    _take(frame, attempt)
        finally:
            exited.cancel()
        code = await self.process.wait()
        self.stderr.drain()
        said = self.stderr.kept.end(_MAX_STDERR_CHARS)
        raise IsolatedProcessError(
            f"the process of {self.agent.name} ended by itself (exit code {code}); "
            f"its standard error ends with: {said or '(nothing)'}"
        )

    async def _next(self, exited: asyncio.Future[int]) -> bytes | None:
        """The next frame, None when the process has ended (its own children may hold the pipe open)."""
        reading = asyncio.ensure_future(next_frame(self.frames))
        try:
            await asyncio.wait((reading, exited), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait((reading,), timeout=_LAST_FRAMES_SECONDS)
            return reading.result() if reading.done() else None
        except EOFError:
            return None
        finally:
            reading.cancel()

    async def _send(self, value: object) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError):  # it has ended: the answer says so
            self.process.stdin.write(framed(value))
            await self.process.stdin.drain()

    async def retire(self) -> None:
        """Let the process end by itself, with the agent's own tear-down; end it when it takes long."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(TERM_SECONDS):
                await self.process.wait()
        await self.end()

    async def end(self) -> None:
        """End the process with all that it started."""
        await self.stack.aclose()


def _take(frame: Span | Logged, attempt: AttemptContext) -> None:
    if isinstance(frame, Logged):
        attempt.log.add(frame.data)
    else:
        attempt.sink.put(frame, attempt.rollout_id, attempt.attempt_id)


def _error_of(answer: Failed) -> BaseException:
    """The exception that the agent raised, or one of the same name where it cannot be rebuilt here."""
    if answer.error is not None:
        with suppress(UnknownClassError):
            error = loaded_value(answer.error)
            if isinstance(error, BaseException):
                return error
    return type(answer.kind, (AgentError,), {})(answer.message)
