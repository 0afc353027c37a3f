"""A runner beside the caller, for as long as a block lasts."""

import asyncio
from pathlib import Path

import pytest
import yaml

from agl.errors import ConfigError
from agl.runners.inline import InlineRunners
from agl.types import RolloutRequest


async def test_rollouts_are_executed_while_the_block_lasts(store) -> None:
    async def agent(task):
        return float(task)

    async with InlineRunners().running(store, agent) as runner:
        rollouts = await store.enqueue_many_rollouts([RolloutRequest(task=number) for number in range(5)])
        done = await store.wait_for_rollouts([rollout.rollout_id for rollout in rollouts], timeout_seconds=20)
    assert [rollout.reward for rollout in done] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert runner.stats.succeeded == 5
    late = await store.enqueue_rollout(RolloutRequest(task=9))
    assert (await store.get_rollout_by_id(late.rollout_id)).status == "pending"


async def test_a_crash_of_the_runner_surfaces_in_the_block(store) -> None:
    async def broken(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    store.dequeue_many_rollouts = broken
    with pytest.raises(ZeroDivisionError, match="a bug"):
        async with InlineRunners().running(store, print):
            await asyncio.Event().wait()


async def test_an_error_of_the_block_is_raised_as_it_is_and_ends_the_agents(store) -> None:
    began = asyncio.Event()

    async def agent(task):
        began.set()
        await asyncio.Event().wait()

    rollout = await store.enqueue_rollout(RolloutRequest(task=0))

    async def block() -> None:
        async with InlineRunners().running(store, agent):
            await began.wait()
            raise LookupError("mine") from ValueError("why")

    with pytest.raises(LookupError, match="mine") as raised:
        await block()
    assert isinstance(raised.value.__cause__, ValueError)
    assert (await store.get_rollout_by_id(rollout.rollout_id)).status == "requeuing"


async def test_the_end_of_the_block_waits_for_what_is_in_hand(store) -> None:
    began = asyncio.Event()

    async def agent(task):
        began.set()
        await asyncio.sleep(0.05)
        return 1.0

    rollout = await store.enqueue_rollout(RolloutRequest(task=0))
    async with InlineRunners().running(store, agent):
        await began.wait()
    assert (await store.get_rollout_by_id(rollout.rollout_id)).status == "succeeded"


async def test_it_waits_no_longer_than_the_setting_says(store, caplog) -> None:
    began = asyncio.Event()

    async def agent(task):
        began.set()
        await asyncio.Event().wait()

    rollout = await store.enqueue_rollout(RolloutRequest(task=0))
    async with InlineRunners(drain_seconds=0.02).running(store, agent):
        await began.wait()
    assert (await store.get_rollout_by_id(rollout.rollout_id)).status == "requeuing"
    assert "drain_seconds=0.02" in caplog.text


async def test_cancelling_the_block_cancels_everything(store) -> None:
    began = asyncio.Event()

    async def agent(task):
        began.set()
        await asyncio.Event().wait()

    async def block() -> None:
        async with InlineRunners().running(store, agent):
            await asyncio.Event().wait()

    rollout = await store.enqueue_rollout(RolloutRequest(task=0))
    task = asyncio.create_task(block())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert (await store.get_rollout_by_id(rollout.rollout_id)).status == "requeuing"


@pytest.mark.parametrize(
    "setting", [{"max_concurrency": 0}, {"heartbeat_seconds": 0.0}, {"drain_seconds": -1.0}]
)
def test_impossible_settings_are_refused_by_name(setting) -> None:
    with pytest.raises(ConfigError, match=f"runner.{next(iter(setting))}"):
        InlineRunners(**setting)


def test_the_yaml_repeats_the_defaults() -> None:
    node = yaml.safe_load(Path("configs/runner/inline.yaml").read_text())
    assert node.pop("_target_") == "agl.runners.inline.InlineRunners"
    assert node == vars(InlineRunners())
