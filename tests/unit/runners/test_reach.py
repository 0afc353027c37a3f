"""Failures for which the network is to blame lead to another attempt; all others stay what they are."""

import time
from dataclasses import replace

import pytest

from agl.runners.outcome import Outcome
from agl.runners.reach import excused
from agl.runners.resources import ResourceShelf
from agl.types import AttemptedRollout, ErrorInfo, ProxyLLM, RolloutConfig, RolloutRequest

FAILED = Outcome(status="failed", error=ErrorInfo(cause="APIConnectionError", message="no", traceback="T"))
PROXY = "http://proxy.test:4748"


class DistantStore:
    def __init__(self, at: float | None) -> None:
        self.out_of_reach_at, self.is_away = at, False


class Link:
    """Connects from the given try on."""

    def __init__(self, after: int) -> None:
        self.tries, self.after = 0, after

    async def __call__(self, url: str) -> bool:
        assert url == PROXY
        self.tries += 1
        return self.tries > self.after


async def claimed(store, **config) -> AttemptedRollout:
    await store.add_resources({"llm": ProxyLLM(base_url=PROXY, model="m")})
    settings = {"max_attempts": 2, "retry_on": ("unresponsive",), **config}
    await store.enqueue_rollout(RolloutRequest(task=1, config=RolloutConfig(**settings)))
    claim = await store.dequeue_rollout(worker_id="w")
    assert claim is not None
    return claim


async def reported(
    store, outcome: Outcome = FAILED, *, link: Link, away: float | None = None, **config
) -> Outcome:
    claim = await claimed(store, **config)
    begun = time.monotonic()
    distant = DistantStore(None if away is None else begun + away)
    return await excused(
        outcome, claim, store=distant, shelf=ResourceShelf(store), begun=begun, connects=link
    )


async def test_an_agents_own_failure_stays_one(store) -> None:
    assert await reported(store, link=Link(0)) is FAILED
    assert await reported(store, link=Link(0), away=-1.0) is FAILED  # that was before the attempt


async def test_a_failure_during_an_outage_of_the_store_leads_to_another_attempt(store) -> None:
    outcome = await reported(store, link=Link(0), away=0.5)
    assert outcome.status == "unresponsive"
    assert outcome.error == ErrorInfo(
        cause="unresponsive",
        message="the store was out of reach; the agent ended with APIConnectionError: no",
        traceback="T",
    )


async def test_a_proxy_that_is_away_is_waited_for_before_the_rollout_goes_back(store) -> None:
    link = Link(2)
    outcome = await reported(store, link=link)
    assert link.tries == 3
    assert outcome.status == "unresponsive"
    assert outcome.error is not None
    assert outcome.error.message.startswith(f"the proxy {PROXY} was out of reach; ")


async def test_a_proxy_is_waited_for_no_longer_than_the_attempt_may_take(store) -> None:
    outcome = await reported(store, link=Link(10**9), timeout_seconds=0.05)
    assert outcome.status == "unresponsive"


@pytest.mark.parametrize("config", [{"max_attempts": 1}, {"retry_on": ("timeout",)}])
async def test_without_another_attempt_the_agents_error_is_told(store, config) -> None:
    link = Link(10**9)
    assert await reported(store, link=link, away=0.5, **config) is FAILED
    assert link.tries == 0


async def test_a_success_is_not_looked_into(store) -> None:
    link, done = Link(10**9), replace(FAILED, status="succeeded", error=None)
    assert await reported(store, done, link=link, away=0.5) is done
    assert link.tries == 0
