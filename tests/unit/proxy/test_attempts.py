import asyncio

import pytest

from agl.proxy.attempts import AttemptDirectory, llm_of_call, sampling_of
from agl.proxy.refusal import CallRefusedError
from agl.types import LLM, ProxyLLM


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def directory(store, clock):
    return AttemptDirectory(store, monotonic=clock)


async def test_an_attempt_is_read_once_and_then_again_every_second(directory, store, clock):
    first = await directory.resources_for_call("r1", "a1")
    assert first == store.resources["v1"]
    assert sorted(store.reads) == ["attempt", "resources", "rollout"]
    clock.now = 0.9
    await directory.resources_for_call("r1", "a1")
    assert len(store.reads) == 3
    clock.now = 1.0
    await directory.resources_for_call("r1", "a1")
    assert store.reads[3:] == ["attempt"]


async def test_calls_that_an_attempt_begins_side_by_side_have_seeds_of_their_own(directory, store):
    store.rollouts["r1"] = store.rollouts["r1"].model_copy(update={"metadata": {"seed": 7}})

    async def seed_of_call():
        await directory.resources_for_call("r1", "a1")
        return directory.seed_of_next_call("r1", "a1")

    seeds = await asyncio.gather(*(seed_of_call() for _ in range(4)))
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("status", ["succeeded", "failed", "timeout", "unresponsive", "cancelled"])
async def test_an_attempt_that_ended_is_refused_within_a_second(directory, store, clock, attempt_of, status):
    await directory.resources_for_call("r1", "a1")
    store.attempts["r1"] = [attempt_of("a1", 1, status)]
    clock.now = 1.0
    with pytest.raises(CallRefusedError, match=rf"is over \({status}\)") as caught:
        await directory.resources_for_call("r1", "a1")
    assert (caught.value.status, caught.value.retry) == (409, False)


async def test_an_ended_attempt_is_never_read_again(directory, store, clock, attempt_of):
    store.attempts["r1"] = [attempt_of("a1", 1, "failed")]
    for now in (0.0, 10.0):
        clock.now = now
        with pytest.raises(CallRefusedError):
            await directory.resources_for_call("r1", "a1")
    assert store.reads.count("attempt") == 1


async def test_a_superseded_attempt_is_refused_and_its_successor_served(directory, store, attempt_of):
    store.attempts["r1"] = [attempt_of("a1", 1, "timeout"), attempt_of("a2", 2, "preparing")]
    with pytest.raises(CallRefusedError, match="superseded by attempt a2") as caught:
        await directory.resources_for_call("r1", "a1")
    assert caught.value.status == 409
    assert await directory.resources_for_call("r1", "a2") is not None


async def test_unknown_ids_are_404_and_are_looked_up_again(directory, store, attempt_of):
    with pytest.raises(CallRefusedError) as caught:
        await directory.resources_for_call("r2", "a1")
    assert (caught.value.status, caught.value.code) == (404, "unknown_rollout")
    store.attempts["r1"] = []
    with pytest.raises(CallRefusedError) as caught:
        await directory.resources_for_call("r1", "a1")
    assert (caught.value.status, caught.value.code) == (404, "unknown_attempt")
    store.attempts["r1"] = [attempt_of("a1", 1)]
    await directory.resources_for_call("r1", "a1")


async def test_a_version_of_resources_is_read_once_for_all_attempts(directory, store, attempt_of):
    await directory.resources_for_call("r1", "a1")
    store.rollouts["r2"] = store.rollouts["r1"].model_copy(update={"rollout_id": "r2"})
    store.attempts["r2"] = [attempt_of("b1", 1)]
    await directory.resources_for_call("r2", "b1")
    assert store.reads.count("resources") == 1


async def test_a_rollout_without_a_version_gets_the_latest(directory, store):
    store.rollouts["r1"] = store.rollouts["r1"].model_copy(update={"resources_id": None})
    assert await directory.resources_for_call("r1", "a1") == store.resources["v1"]


def proxy_llm(model, **sampling):
    return ProxyLLM(base_url="http://proxy", model=model, sampling=sampling)


def test_the_resource_whose_model_is_called_forces_its_sampling(resources_of):
    given = resources_of(proxy_llm("policy", temperature=1.0), judge=proxy_llm("judge", temperature=0.0))
    assert sampling_of(llm_of_call(given, "judge")) == {"temperature": 0.0}
    assert sampling_of(llm_of_call(given, "policy")) == {"temperature": 1.0}


def test_the_resource_named_llm_is_for_every_other_model(resources_of):
    given = resources_of(
        LLM(base_url="http://x/v1", model="gpt", sampling={"seed": 1}), judge=proxy_llm("judge")
    )
    assert sampling_of(llm_of_call(given, "unheard-of")) == {"seed": 1}


@pytest.mark.parametrize("llm", ["just text", None, {"temperature": 0.0}])
def test_other_resources_force_nothing(resources_of, llm):
    assert sampling_of(llm_of_call(resources_of(llm), "policy")) == {}
    assert sampling_of(llm_of_call(None, "policy")) == {}


class Remembered:
    """A memory of some size."""

    def __init__(self, num_bytes=0):
        self.num_bytes = num_bytes


def test_each_attempt_has_a_memory_of_its_own(directory):
    own = directory.memory_of("r1", "a1", Remembered)
    assert directory.memory_of("r1", "a1", Remembered) is own
    assert directory.memory_of("r1", "a2", Remembered) is not own


def test_the_memories_of_long_silent_attempts_are_forgotten_when_all_are_too_large(directory):
    sizes = {"a1": 100, "a2": 200, "a3": 2}
    held = {
        name: directory.memory_of("r1", name, lambda size=size: Remembered(size * 2**20))
        for name, size in sizes.items()
    }
    assert directory.memory_of("r1", "a3", Remembered) is held["a3"]
    assert directory.memory_of("r1", "a2", Remembered) is held["a2"]
    assert directory.memory_of("r1", "a1", Remembered) is not held["a1"]
