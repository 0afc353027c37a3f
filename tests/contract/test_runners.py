"""Every kind of runners keeps the same promises: inline, in child processes, and joined from elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import process_agents
import pytest
from awaited import number_in

from agl.runners.inline import InlineRunners
from agl.runners.processes import ProcessRunners
from agl.runners.remote import RemoteRunners
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest

DRAIN_SECONDS = 1.0


def grader(result: float) -> float:
    """Half of what the agent says."""
    return result / 2


class Place:
    """A served store, and runners of one kind on it."""

    def __init__(self, kind: str, store: LightningStore, url: str) -> None:
        self.kind, self.store, self.url = kind, store, url

    @asynccontextmanager
    async def running(self, **arguments: Any) -> AsyncIterator[None]:
        """Execute rollouts of the run ``mine`` while the block lasts."""
        given = {"run_id": "mine", "store_url": self.url, **arguments}
        settings: dict[str, Any] = {"heartbeat_seconds": 0.2, "drain_seconds": DRAIN_SECONDS}
        agent = process_agents.obedient
        if self.kind == "inline":
            async with InlineRunners(**settings).running(self.store, agent, **given):
                yield
        elif self.kind == "processes":
            async with ProcessRunners(processes=2, **settings).running(self.store, agent, **given):
                yield
        else:
            async with (
                LightningStoreClient(self.url) as elsewhere,
                InlineRunners(**settings).running(elsewhere, agent, **given),
                RemoteRunners().running(self.store, agent, **given),
            ):
                yield

    async def enqueued(self, *tasks: dict[str, Any], run_id: str = "mine") -> list[str]:
        """Enqueue rollouts of a run."""
        requests = [RolloutRequest(task=task, run_id=run_id) for task in tasks]
        return [rollout.rollout_id for rollout in await self.store.enqueue_many_rollouts(requests)]

    async def statuses(self, ids: list[str]) -> list[str]:
        """Return how the rollouts stand."""
        return [(await self.store.get_rollout_by_id(rollout_id)).status for rollout_id in ids]


@pytest.fixture(params=["inline", "processes", "remote"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with InMemoryLightningStore() as store, StoreServer(store, port=0).serving() as url:
        yield Place(request.param, store, url)


async def test_rollouts_of_the_run_are_executed_and_graded_while_the_block_lasts(place: Place) -> None:
    others = await place.enqueued({}, run_id="other")
    async with place.running(grader=grader):
        ids = await place.enqueued({"reward": 1.0}, {"reward": "none"})
        done = await place.store.wait_for_rollouts(ids, timeout_seconds=60)
    assert [rollout.reward for rollout in done] == [0.5, None]
    assert done[1].error is not None
    assert done[1].error.cause == "ValueError"
    late = await place.enqueued({})
    assert await place.statuses([*others, *late]) == ["pending", "pending"]


async def test_the_end_of_the_block_finishes_what_is_in_hand_or_hands_it_back(
    place: Place, tmp_path: Path
) -> None:
    async with place.running():
        quick = {"started": str(tmp_path / "quick"), "release": str(tmp_path / "go")}
        slow = {"started": str(tmp_path / "slow"), "release": str(tmp_path / "never")}
        ids = await place.enqueued(quick, slow)
        for name in ("quick", "slow"):
            await number_in(tmp_path / name)
        (tmp_path / "go").touch()
    assert await place.statuses(ids) == ["succeeded", "requeuing"]


async def test_an_error_of_the_block_is_raised_as_it_is_and_hands_everything_back(
    place: Place, tmp_path: Path
) -> None:
    task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "never")}
    ids = await place.enqueued(task)

    async def block() -> None:
        async with place.running():
            await number_in(tmp_path / "pid")
            raise LookupError("mine") from ValueError("why")

    with pytest.raises(LookupError, match="mine") as raised:
        await block()
    assert isinstance(raised.value.__cause__, ValueError)
    assert await place.statuses(ids) == ["requeuing"]
