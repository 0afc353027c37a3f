"""The first SIGTERM asks; the next one does what it did before."""

import asyncio
import os
import signal

from agl.launch.draining import drained_by_sigterm


async def test_the_first_one_sets_the_event_and_the_next_has_the_effect_of_before() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        stop = asyncio.Event()
        with drained_by_sigterm(stop):
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()
            assert came == []
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_an_ignored_signal_stays_ignored_and_nothing_is_left_behind() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        stop = asyncio.Event()
        with drained_by_sigterm(stop):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)
    with drained_by_sigterm(asyncio.Event()):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
