from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from agl.store.server.polls import LongPolls
from agl.store.server.refusal import ClientGoneError


class Client:
    """A client that stays until told to leave."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}


class Wait:
    """A store's wait: begun, then ended or cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "found"


async def test_a_poll_answers_what_the_wait_finds() -> None:
    polls, wait = LongPolls(), Wait()
    task = asyncio.create_task(polls.wait(Client().receive, wait(), otherwise="nothing"))
    await wait.begun.wait()
    assert len(polls) == 1

    wait.end.set()

    assert await task == "found"
    assert len(polls) == 0


async def test_the_wait_ends_with_its_client() -> None:
    polls, wait, client = LongPolls(), Wait(), Client()
    task = asyncio.create_task(polls.wait(client.receive, wait(), otherwise="nothing"))
    await wait.begun.wait()

    client.left.set()

    with pytest.raises(ClientGoneError):
        await task
    assert wait.cancelled
    assert len(polls) == 0


async def test_a_release_ends_polls_with_what_they_have_now_and_later() -> None:
    polls, waits = LongPolls(), [Wait(), Wait()]
    tasks = [asyncio.create_task(polls.wait(Client().receive, w(), otherwise="nothing")) for w in waits]
    for wait in waits:
        await wait.begun.wait()

    polls.release()

    assert await asyncio.gather(*tasks) == ["nothing", "nothing"]
    assert all(wait.cancelled for wait in waits)
    later = Wait()
    assert await polls.wait(Client().receive, later(), otherwise="nothing") == "nothing"
    assert not later.begun.is_set()


async def test_a_cancelled_request_cancels_its_wait() -> None:
    polls, wait = LongPolls(), Wait()
    task = asyncio.create_task(polls.wait(Client().receive, wait(), otherwise="nothing"))
    await wait.begun.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert wait.cancelled


async def test_the_waits_error_is_the_polls_error() -> None:
    async def fail() -> str:
        raise LookupError("unknown")

    with pytest.raises(LookupError, match="unknown"):
        await LongPolls().wait(Client().receive, fail(), otherwise="nothing")
