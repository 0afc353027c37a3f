"""The process of an isolated agent (``python -m agl.agents.isolated``): runs one attempt after the other.

Frames come on standard input: the agent, then assignments. What happens goes back as frames on the descriptor that is
the only argument. The end of standard input ends the process, in the middle of an attempt too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agl.agents.base import Agent, opened
from agl.agents.frames import Done, Failed, FrameWriter, Logged, Start, Work, read_frame
from agl.tracing.context import AttemptContext, entered
from agl.tracing.conversion import span_from_otel
from agl.tracing.kept import KeptBytes
from agl.tracing.output import AttemptLog
from agl.tracing.provider import follow_global, new_provider
from agl.types import Span


class _FrameSink:
    """Hands ended spans to the runner."""

    sink_id = "isolated"

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer

    def put(self, span: ReadableSpan | Span, rollout_id: str, attempt_id: str) -> None:
        record = span if isinstance(span, Span) else span_from_otel(span, rollout_id, attempt_id)
        self._writer.write(record)


class _SentLog(KeptBytes):
    """Hands the log to the runner as it comes: it must be there also when this process is killed."""

    def __init__(self, writer: FrameWriter) -> None:
        super().__init__()
        self._writer = writer

    def add(self, data: bytes) -> None:
        self._writer.write(Logged(data=data))


class _Inbox:
    """Frames from the runner, read by a thread that ends the process with the runner."""

    def __init__(self, file: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self._file = file
        self._loop = loop
        self._frames: asyncio.Queue[Work | None] = asyncio.Queue()
        self.busy = False

    def read_forever(self) -> None:
        """Read until there is no more; then an attempt under way ends here and now."""
        while True:
            try:
                frame: Work | None = read_frame(self._file)
            except EOFError:
                frame = None
                if self.busy:
                    os._exit(1)
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._frames.put_nowait, frame)
            if frame is None:
                return

    async def next(self) -> Work | None:
        """Wait for the next attempt, None at the end."""
        return await self._frames.get()


async def _serve(start: Start, inbox_file: BinaryIO, writer: FrameWriter) -> None:
    provider = new_provider()
    follow_global(provider)
    tracer, sink = provider.get_tracer("agl"), _FrameSink(writer)
    logging.getLogger().addHandler(AttemptLog(sink.sink_id, prints_kept=False))  # standard error is kept too
    inbox = _Inbox(inbox_file, asyncio.get_running_loop())
    threading.Thread(target=inbox.read_forever, name="agl inbox", daemon=True).start()
    agent: Agent = pickle.loads(start.agent)  # noqa: S301 - from the runner
    async with opened(agent):
        while (work := await inbox.next()) is not None:
            inbox.busy = True
            made = work.assignment.attempt
            context = AttemptContext(
                rollout_id=made.rollout_id,
                attempt_id=made.attempt_id,
                sink=sink,
                tracer=tracer,
                log=_SentLog(writer),
            )
            answer = await _attempted(agent, work, context)
            inbox.busy = False
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            writer.write(answer)


async def _attempted(agent: Agent, work: Work, context: AttemptContext) -> Done | Failed:
    carrier = {} if work.parent is None else {"traceparent": work.parent}
    os.environ.update(
        {**work.assignment.environment, **{key.upper(): value for key, value in carrier.items()}}
    )
    try:
        with entered(context):
            parent = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier))
            token = otel_context.attach(trace.set_span_in_context(parent))
            try:
                result = await asyncio.create_task(agent.run(work.assignment))
            finally:
                otel_context.detach(token)
        return Done(result=pickle.dumps(result), rewards=context.rewards)
    except BaseException as error:  # noqa: BLE001 - an attempt: handed over to the runner
        return failed(error)


def failed(error: BaseException) -> Failed:
    """Return an exception as it travels: itself where it survives that, and what it says in any case."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - what was just made
    except Exception:  # noqa: BLE001 - an attempt: what cannot travel is told in words
        data = None
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001 - an attempt: an error that cannot say what it is
        message = f"(its message cannot be shown: {type(second).__name__})"
    return Failed(
        error=data,
        kind=type(error).__name__,
        message=message,
        traceback="".join(traceback.format_exception(error)),
    )


def main() -> None:
    """Serve until the frames end."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only form
    writer = FrameWriter(descriptor)
    with os.fdopen(os.dup(0), "rb") as frames, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # what the agent reads from its standard input is not for it
        start: Any = read_frame(frames)
        sys.path[:] = start.path
        logging.getLogger().setLevel(start.log_level)
        try:
            asyncio.run(_serve(start, frames, writer))
        except Exception as error:  # noqa: BLE001 - an attempt: handed over to the runner
            writer.write(failed(error))
            sys.stderr.flush()
            os._exit(1)


if __name__ == "__main__":
    main()
