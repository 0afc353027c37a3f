"""Runners that join: who counts, what is said, and how long the run waits."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agl.errors import ConfigError, RunStoppedError
from agl.runners.remote import Crowd, RemoteRunners, join_command, works_for
from agl.types import Worker


def worker(**stats: object) -> Worker:
    return Worker(worker_id="w", registered_at=0.0, last_heartbeat_at=0.0, stats=stats)


async def joined(store, name: str, host: str = "gpu1", **stats: object) -> None:
    await store.register_worker(name, host=host)
    await store.worker_heartbeat(name, stats=stats)


class Time:
    """A clock that sleeping moves on, and what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: dict[float, object] = {}

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        for moment in [moment for moment in self.events if moment <= self.now]:
            await self.events.pop(moment)  # type: ignore[misc]


def crowd(store, note: Callable[[str], None], time: Time) -> Crowd:
    return Crowd(
        store,
        run_id="r",
        silent_seconds=30.0,
        note=note,
        sleep=time.sleep,
        clock=lambda: time.now,
    )


@pytest.mark.parametrize(
    ("stats", "counts"),
    [
        ({}, True),
        ({"run_id": None, "ended": False}, True),
        ({"run_id": "r"}, True),
        ({"run_id": "other"}, False),
        ({"run_id": "r", "ended": True}, False),
    ],
)
def test_who_works_for_the_run(stats, counts: bool) -> None:
    assert works_for(worker(**stats), "r") is counts


async def test_the_wait_says_what_to_type_and_how_long_it_lasts_and_ends_when_enough_are_here(store) -> None:
    notes: list[str] = []
    time = Time()
    time.events = {
        2.0: joined(store, "w1"),
        31.0: joined(store, "w2", host="gpu2"),
        40.0: joined(store, "w3"),
    }
    await crowd(store, notes.append, time).wait(3, command="agl runner", limit=None)
    assert notes == [
        "waiting for runners: 0 of 3 joined. Start one, with this run's recipe: agl runner",
        "waiting for runners for 30 s: 1 of 3 joined. Start one, with this run's recipe: agl runner",
        "3 runners have joined, on gpu1, gpu2",
    ]


async def test_those_who_are_here_already_are_not_talked_about(store) -> None:
    notes: list[str] = []
    await joined(store, "w1")
    await crowd(store, notes.append, Time()).wait(1, command="", limit=1.0)
    assert notes == []


async def test_a_wait_without_anybody_ends_with_what_to_do(store) -> None:
    time = Time()
    with pytest.raises(
        RunStoppedError, match=r"0 of 1 runners joined within wait_seconds=2.5; .*: agl runner"
    ):
        await crowd(store, print, time).wait(1, command="agl runner", limit=2.5)
    assert time.now == 2.5


async def test_the_block_is_stopped_when_all_runners_have_gone(store) -> None:
    looks = iter([[worker()]])

    async def next_look(**_: object) -> list[Worker]:
        return next(looks, [])

    store.get_active_workers = next_look
    expected = r"0 of 1 runners.*agl runner \+recipe=NAME --store-url http://store"
    with pytest.raises(RunStoppedError, match=expected):
        async with RemoteRunners(wait_seconds=0.02).running(store, print, store_url="http://store"):
            await asyncio.Event().wait()


async def test_when_all_have_gone_the_next_one_is_waited_for(store) -> None:
    notes: list[str] = []
    both = asyncio.Event()

    def note(text: str) -> None:
        notes.append(text)
        if len(notes) == 2:
            both.set()

    time = Time()
    await joined(store, "w1")
    time.events = {
        5.0: store.worker_heartbeat("w1", stats={"ended": True}),
        9.0: joined(store, "w2", host="gpu2"),
    }
    watching = asyncio.create_task(crowd(store, note, time).watch(command="agl runner", limit=None))
    await both.wait()
    watching.cancel()
    assert notes == [
        "waiting for runners: 0 of 1 joined. Start one, with this run's recipe: agl runner",
        "1 runner has joined, on gpu2",
    ]


async def test_an_error_of_the_block_is_raised_as_it_is(store) -> None:
    await joined(store, "w1")
    with pytest.raises(LookupError, match="mine"):
        async with RemoteRunners().running(store, print):
            raise LookupError("mine")


def test_the_command_names_the_run_and_hides_the_token() -> None:
    assert (
        join_command("http://h:1", run_id=None, token=False)
        == "agl runner +recipe=NAME --store-url http://h:1"
    )
    with_secret = join_command("http://h:1", run_id="r1", token=True)
    assert with_secret == "AGL_STORE_TOKEN=... agl runner +recipe=NAME --store-url http://h:1 --run-id r1"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"min_workers": 0}, "min_workers=0"),
        ({"wait_seconds": 0.0}, "wait_seconds"),
        ({"silent_seconds": 0}, "silent"),
    ],
)
def test_wrong_settings_are_named(settings, named) -> None:
    with pytest.raises(ConfigError, match=f"runner.{named}"):
        RemoteRunners(**settings)


def test_the_settings_file_says_what_the_class_does() -> None:
    path = Path(__file__).parents[3] / "configs/runner/remote.yaml"
    settings = yaml.safe_load(path.read_text())
    assert settings.pop("_target_") == "agl.runners.remote.RemoteRunners"
    assert RemoteRunners(**settings).__dict__ == RemoteRunners().__dict__
