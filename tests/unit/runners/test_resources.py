"""A version of the resources is looked up once."""

import asyncio

import pytest

from agl.agents.base import MissingResourceError
from agl.runners.resources import KEPT_VERSIONS, ResourceShelf, resolved
from agl.types import Attempt, AttemptedRollout, PromptTemplate, ProxyLLM, Rollout


def claim(resources_id: str | None) -> AttemptedRollout:
    return AttemptedRollout(
        rollout=Rollout(rollout_id="r1", task=0, resources_id=resources_id, created_at=1.0),
        attempt=Attempt(
            attempt_id="a1", rollout_id="r1", sequence_id=1, started_at=1.0, last_heartbeat_at=1.0
        ),
    )


async def test_attempts_that_come_together_look_a_version_up_once(store) -> None:
    named = await store.add_resources({"n": 1})
    asked: list[str] = []
    get = store.get_resources_by_id

    async def counted(resources_id: str):
        asked.append(resources_id)
        return await get(resources_id)

    store.get_resources_by_id = counted
    shelf = ResourceShelf(store)
    found = await asyncio.gather(*(shelf.resources_for(claim(named.resources_id)) for _ in range(20)))
    assert found == [{"n": 1}] * 20
    assert asked == [named.resources_id]


async def test_only_the_last_versions_are_kept(store) -> None:
    versions = [await store.add_resources({"n": number}) for number in range(KEPT_VERSIONS + 1)]
    shelf = ResourceShelf(store)
    for version in versions:
        await shelf.resources_for(claim(version.resources_id))
    assert len(shelf._kept) == KEPT_VERSIONS
    assert versions[0].resources_id not in shelf._kept


async def test_a_claim_without_resources_has_none(store) -> None:
    assert await ResourceShelf(store).resources_for(claim(None)) == {}


async def test_an_unknown_version_is_a_missing_resource(store) -> None:
    with pytest.raises(MissingResourceError, match="asks for resources 'gone'"):
        await ResourceShelf(store).resources_for(claim("gone"))


def test_only_the_proxy_is_made_the_attempts_own() -> None:
    prompt = PromptTemplate(template="x")
    found = resolved({"llm": ProxyLLM(base_url="http://p/", model="m"), "prompt": prompt, "n": 3}, "r1", "a1")
    assert found["llm"].base_url == "http://p/rollout/r1/attempt/a1/v1"
    assert (found["prompt"], found["n"]) == (prompt, 3)
