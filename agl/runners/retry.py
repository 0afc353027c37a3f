"""Waiting for a store that is away for a while: only for calls that may be repeated."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from agl.errors import StoreChangedError, StoreUnavailableError

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 10.0


def delays() -> Iterator[float]:
    """Yield pauses between tries, in seconds: doubling up to a limit, with jitter so that runners spread."""
    delay = FIRST_DELAY_SECONDS
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(2 * delay, MAX_DELAY_SECONDS)


async def when_available(call: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Return what ``call`` returns, trying again for as long as the store is unavailable.

    There is no limit of its own: the caller is stopped by its timeout or its cancellation.

    Args:
        call: must be safe to repeat.
        what: what is being done, for the log: "reporting rollout r1".

    Raises:
        StoreChangedError: another store answers; the one that is waited for may never come back.
    """
    waited = False
    for delay in delays():
        try:
            result = await call()
        except StoreChangedError:
            raise
        except StoreUnavailableError as error:
            log.warning("the store is unavailable (%s): %s waits for it", error, what)
            waited = True
            await asyncio.sleep(delay)
        else:
            if waited:
                log.info("the store is back: %s goes on", what)
            return result
    raise AssertionError("delays() has no end")
