"""A runner as a process of its own: ``python -m agl.runners.child``, started by ``ProcessRunners``.

It lives no longer than the process that started it: when that one is gone, however it went, its end of standard input
closes, the agents are stopped and their rollouts handed back. A watching thread sees to it when the event loop hangs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from agl.agents.process_tree import kill_tree
from agl.errors import AccessDeniedError, AglError, ConfigError, MissingExtraError, StoreChangedError
from agl.http.chatty import quieten
from agl.runners.hooks import Hook
from agl.runners.orders import DRAIN, MARK, Order, Word, read_order
from agl.runners.retry import when_available
from agl.runners.runner import LitAgentRunner
from agl.runners.transfer import unpacked
from agl.store.client import LightningStoreClient

log = logging.getLogger("agl.runners.child")  # this module is the program

END_SECONDS = 3.8
"""From the end of the parent: agents get 2 s of it, handing back 1.5 s. A child still there then ends itself."""
HOPELESS = (ConfigError, MissingExtraError, AccessDeniedError, StoreChangedError)
"""Errors that another process would meet in the same way."""
REFUSED = 2
"""Exit code."""


class Channel:
    """The child's end of what it shares with its parent.

    Args:
        source: commands.
        target: takes words.
    """

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source, self._target = source, target

    def order(self) -> bytes | None:
        """Return the packed order, None when the parent is gone."""
        return read_order(self._source)

    def say(self, word: Word) -> None:
        """Tell the parent; it may be gone."""
        with suppress(OSError, ValueError):
            self._target.write(word.line())
            self._target.flush()

    def watch(self, on_drain: Callable[[], object], on_end: Callable[[], object]) -> None:
        """Call these, from a thread, when the parent asks for it, and when the parent is gone."""

        def follow() -> None:
            while command := self._source.read(1):
                if command == DRAIN:
                    on_drain()
            on_end()

        threading.Thread(target=follow, name="agl-parent", daemon=True).start()


class _FirstAttempt(Hook):
    """Says once that an attempt has come to its end in this process."""

    def __init__(self, say: Callable[[Word], None]) -> None:
        self._say: Callable[[Word], None] | None = say

    async def on_rollout_end(self) -> None:
        """Say it."""
        if self._say is not None:
            self._say(Word(kind="settled"))
            self._say = None


def main() -> int:
    """Run until the parent says so or is gone, or SIGTERM (drain) or a second signal (at once) comes."""
    channel = _claimed_streams()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    quieten()
    order = channel.order()
    if order is None:
        return 0
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_work(order, channel))
    except HOPELESS as error:
        channel.say(Word(kind="refused", cause=type(error).__name__, message=str(error)))
        return REFUSED
    except AglError as error:
        log.error("%s", error)  # noqa: TRY400 - expected: the message says it all
        return 1
    finally:
        _end_what_was_started()
    return 0


async def _work(packed_order: bytes, channel: Channel) -> None:
    loop, task, stop = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None
    patience = 0.0

    def end() -> None:
        _start_clock()
        task.cancel()

    def drain() -> None:
        if not stop.is_set():
            stop.set()
            loop.call_later(patience, end)

    def signalled() -> None:
        (end if stop.is_set() else drain)()

    def orphaned() -> None:
        _start_clock()
        _call_soon(loop, end)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    channel.watch(lambda: _call_soon(loop, drain), orphaned)
    order: Order = unpacked(packed_order)
    patience = order.drain_seconds
    try:
        await _run(order, channel, stop)
    except asyncio.CancelledError:
        log.debug("stopped")


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call)


async def _run(order: Order, channel: Channel, stop: asyncio.Event) -> None:
    store = LightningStoreClient(order.store_url, token=order.store_token)
    runner = LitAgentRunner(
        store,
        order.agent,
        max_concurrency=order.max_concurrency,
        heartbeat_seconds=order.heartbeat_seconds,
        run_id=order.run_id,
        grader=order.grader,
        hooks=[*order.hooks, _FirstAttempt(channel.say)],
        store_url=order.store_url,
        store_token=order.store_token,
        follow_libraries=order.follow_libraries,
    )
    await when_available(store.open, what=f"the runner {runner.worker_id}")
    try:
        found = (await store.health())["identity"]
        if found != order.identity:
            raise StoreChangedError(
                f"{order.store_url} is another store now: {found}, while this run is in {order.identity}"
            )
        channel.say(Word(kind="ready", message=runner.worker_id))
        await runner.run(stop)
    finally:
        await store.close()


def _start_clock() -> None:
    """End this process and what it has started, in a while, whatever hangs."""

    def expire() -> None:
        log.error("the runner did not end within %g s of its parent and is given up", END_SECONDS)
        _end_what_was_started()
        os._exit(1)

    clock = threading.Timer(END_SECONDS, expire)
    clock.daemon = True
    clock.start()


def _end_what_was_started() -> None:
    """Kill what agents have left behind: when the parent is gone nobody else does."""
    mark = os.environ.get(MARK)
    if mark:
        kill_tree(f"{MARK}={mark}")


def _claimed_streams() -> Channel:
    """Keep standard input and output for the parent; what agents print goes to standard error, they read nothing."""
    source, target = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Channel(source, target)


def _loop_factory() -> Callable[[], Any] | None:
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None


if __name__ == "__main__":
    sys.exit(main())
