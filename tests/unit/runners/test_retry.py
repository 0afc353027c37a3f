"""A store that is away is waited for."""

from itertools import islice

import pytest

from agl.errors import StoreChangedError, StoreUnavailableError
from agl.runners.retry import FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, delays, when_available


def test_pauses_double_up_to_a_limit() -> None:
    pauses = list(islice(delays(), 12))
    for number, pause in enumerate(pauses):
        longest = min(FIRST_DELAY_SECONDS * 2**number, MAX_DELAY_SECONDS)
        assert longest / 2 <= pause <= longest


async def test_a_call_is_repeated_until_the_store_is_back(caplog) -> None:
    tries: list[int] = []

    async def call() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnavailableError("away")
        return "answer"

    with caplog.at_level("INFO"):
        assert await when_available(call, what="reporting rollout r1") == "answer"
    assert len(tries) == 2
    assert "reporting rollout r1 waits for it" in caplog.text
    assert "the store is back: reporting rollout r1 goes on" in caplog.text


async def test_another_store_is_not_waited_for() -> None:
    tries: list[int] = []

    async def call() -> None:
        tries.append(1)
        raise StoreChangedError("another store now")

    with pytest.raises(StoreChangedError, match="another store now"):
        await when_available(call, what="reporting rollout r1")
    assert len(tries) == 1
