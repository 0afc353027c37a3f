"""A service ends when a signal asks for it, and in time."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from agl.launch.stopping import SIGNALS, run_interruptibly, run_until_stopped


@asynccontextmanager
async def signalled(number: signal.Signals, log: list[str]) -> AsyncGenerator[None]:
    """A service that is asked to stop as soon as it is open."""
    log.append("open")
    asyncio.get_running_loop().call_soon(signal.raise_signal, number)
    try:
        yield
    finally:
        await asyncio.sleep(0)
        log.append("closed")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_closes_the_service_and_is_returned(number: signal.Signals) -> None:
    log: list[str] = []
    assert run_until_stopped(lambda: signalled(number, log)) is number
    assert log == ["open", "closed"]


def test_the_handlers_of_before_are_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    run_until_stopped(lambda: signalled(signal.SIGTERM, []))
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_second_signal_has_the_systems_own_effect() -> None:
    during: list[object] = []

    @asynccontextmanager
    async def service() -> AsyncGenerator[None]:
        async with signalled(signal.SIGINT, []):
            yield
            during.extend(signal.getsignal(number) for number in SIGNALS)

    run_until_stopped(service)
    assert during == [signal.SIG_DFL, signal.SIG_DFL]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    @asynccontextmanager
    async def service() -> AsyncGenerator[None]:
        async with signalled(signal.SIGTERM, []):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            yield

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_until_stopped(service) is signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_while_the_service_opens_is_answered_when_it_is_open() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def service() -> AsyncGenerator[None]:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        log.append("open")
        yield
        log.append("closed")

    assert run_until_stopped(service) is signal.SIGTERM
    assert log == ["open", "closed"]


def test_a_service_that_does_not_end_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    given_up = threading.Event()
    codes: list[int] = []

    def give_up(code: int) -> None:
        codes.append(code)
        given_up.set()

    @asynccontextmanager
    async def service() -> AsyncGenerator[None]:
        async with signalled(signal.SIGTERM, []):
            yield
        await asyncio.to_thread(given_up.wait)

    run_until_stopped(service, limit_seconds=0.01, give_up=give_up)
    assert codes == [1]
    assert "did not end within 0.01 s" in caplog.text


def test_the_error_of_a_service_that_does_not_open_comes_through() -> None:
    @asynccontextmanager
    async def service() -> AsyncGenerator[None]:
        raise OSError("no")
        yield

    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(OSError, match="no"):
        run_until_stopped(service)
    assert [signal.getsignal(number) for number in SIGNALS] == before


# Work that ends by itself.


def test_work_returns_what_it_made() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 5

    before = [signal.getsignal(number) for number in SIGNALS]
    assert run_interruptibly(work) == 5
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_work_which_tidies_up(number: signal.Signals) -> None:
    log: list[str] = []

    async def work() -> None:
        try:
            signal.raise_signal(number)
            await asyncio.sleep(60)
        finally:
            log.append("tidied")

    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(work)
    assert log == ["tidied"]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_fails_on_the_way_out_is_an_interrupt_with_its_cause() -> None:
    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("the store is gone") from None

    with pytest.raises(KeyboardInterrupt) as interrupt:
        run_interruptibly(work)
    assert str(interrupt.value.__cause__) == "the store is gone"


def test_an_error_without_a_signal_stays_as_it_is() -> None:
    async def work() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        run_interruptibly(work)


def test_a_thread_under_way_is_left_behind() -> None:
    over, ended = threading.Event(), threading.Event()

    def slow() -> None:
        over.wait()
        ended.set()

    async def work() -> None:
        thread = asyncio.create_task(asyncio.to_thread(slow))
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)
        await thread

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(work)
    assert not ended.is_set()
    over.set()
    ended.wait()


def test_threads_are_waited_for_where_no_signal_came() -> None:
    ended: list[int] = []
    begun = threading.Event()

    def slow() -> None:
        begun.wait()
        ended.append(1)

    async def work() -> None:
        asyncio.get_running_loop().run_in_executor(None, slow)
        asyncio.get_running_loop().call_soon(begun.set)

    run_interruptibly(work)
    assert ended == [1]


def test_work_that_does_not_heed_its_cancellation_is_given_up_with_code_130() -> None:
    codes: list[int] = []

    async def work() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def give_up(code: int) -> None:
            codes.append(code)
            loop.call_soon_threadsafe(over.set)

        gives_up.append(give_up)
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            await over.wait()

    gives_up: list[Callable[[int], None]] = []
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(work, limit_seconds=0.01, give_up=lambda code: gives_up[0](code))
    assert codes == [130]


def test_work_in_another_thread_catches_no_signals() -> None:
    async def work() -> int:
        return 7

    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(run_interruptibly(work)))
    thread.start()
    thread.join()
    assert results == [7]


def test_a_loop_that_is_blocked_is_given_up_with_a_last_line() -> None:
    program = """
import signal, time
from agl.launch.stopping import run_interruptibly

async def work():
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)

run_interruptibly(work, limit_seconds=0.01)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "agl: interrupted")
