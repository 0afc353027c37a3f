"""What a search takes, and its limits."""

from __future__ import annotations

from typing import Any

import pytest
from prompt_searches import proxied_call

from agl.algorithms.prompts.endings import SearchEndedError
from agl.algorithms.prompts.spending import Budget, Spent, spent_in, spent_in_rollout, spent_in_vain
from agl.errors import ConfigError
from agl.evaluation.rollouts import set_aside
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ErrorInfo, RolloutConfig, RolloutRequest
from agl.types import attributes as key


def test_a_budget_names_the_first_limit_that_is_passed() -> None:
    budget = Budget(max_rollouts=10, max_tokens=100, max_minutes=2)
    assert budget.exceeded_by(Spent(rollouts=10, tokens=100, seconds=120)) is None
    assert budget.exceeded_by(Spent(rollouts=11)) == "max_rollouts=10"
    assert budget.exceeded_by(Spent(tokens=101)) == "max_tokens=100"
    assert budget.exceeded_by(Spent(seconds=121)) == "max_minutes=2"


@pytest.mark.parametrize(
    ("spent", "more", "words", "setting"),
    [
        (
            Spent(rollouts=7),
            Spent(rollouts=4),
            "next 4 rollouts would pass budget.max_rollouts=10",
            "max_rollouts=20",
        ),
        (Spent(rollouts=7), Spent(rollouts=30), "next 30 rollouts would pass", "max_rollouts=37"),
        (Spent(tokens=60), Spent(tokens=41), "budget.max_tokens=100 is spent, or would be", "max_tokens=200"),
        (Spent(seconds=121), Spent(), "budget.max_minutes=2 is spent", "max_minutes=4"),
    ],
)
def test_what_would_pass_a_limit_ends_the_search_and_says_which_would_do(
    spent: Spent, more: Spent, words: str, setting: str
) -> None:
    budget = Budget(max_rollouts=10, max_tokens=100, max_minutes=2)
    budget.check(Spent(rollouts=7, tokens=60), Spent(rollouts=3, tokens=40))
    with pytest.raises(SearchEndedError, match=words) as ended:
        budget.check(spent, more)
    assert ended.value.more == f"budget.{setting}"


@pytest.mark.parametrize("limits", [{"max_cost": 0.0}, {"max_rollouts": -1}, {"max_minutes": 0}])
def test_a_budget_of_nothing_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"budget.{next(iter(limits))}"):
        Budget(**limits)


def test_spending_says_what_is_known_of_the_cost() -> None:
    assert str(Spent(rollouts=2, calls=3, tokens=9, cost_usd=0.5, seconds=90)) == (
        "2 rollouts, 3 calls, 9 tokens, $0.5000, 1.5 minutes"
    )
    assert "cost unknown" in str(Spent(calls=3, unpriced_calls=3))
    assert "$0.5000 and 1 calls without a price" in str(Spent(calls=3, cost_usd=0.5, unpriced_calls=1))


def test_what_more_of_the_same_takes() -> None:
    more = Spent(rollouts=4, calls=8, tokens=100, cost_usd=2.0, seconds=9).of_calls(0.5)
    assert more == Spent(calls=4, tokens=50, cost_usd=1.0)


async def test_every_attempt_of_a_rollout_is_paid_for() -> None:
    async with InMemoryLightningStore() as store:
        request = RolloutRequest(task=1, rollout_id="r", config=RolloutConfig(max_attempts=2))
        first = await store.start_rollout(request)
        await store.add_many_spans([proxied_call("r", first.attempt.attempt_id, **{key.COST_USD: 0.25})])
        await store.update_attempt(
            "r", first.attempt.attempt_id, status="failed", error=ErrorInfo(cause="ValueError")
        )
        second = await store.dequeue_rollout(worker_id="w")
        assert second is not None
        await store.add_many_spans([proxied_call("r", second.attempt.attempt_id, **{key.COST_USD: 0.5})])
        done = await store.update_attempt("r", second.attempt.attempt_id, status="succeeded", reward=1.0)
        spent = await spent_in_rollout(store, done.rollout)
    assert (spent.rollouts, spent.calls, spent.tokens, spent.cost_usd) == (1, 2, 30, 0.75)


async def test_refused_and_replayed_calls_cost_nothing() -> None:
    async with InMemoryLightningStore() as store:
        claim = await store.start_rollout(RolloutRequest(task=1, rollout_id="r"))
        spans = [
            proxied_call("r", "a", answered="1"),
            proxied_call("r", "a", answered="2", **{key.ERROR_TYPE: "budget_exceeded"}),
            proxied_call("r", "a", answered="3", **{key.CACHE: "hit"}),
        ]
        assert spent_in(claim.rollout, spans).calls == 1
        assert spent_in(claim.rollout, spans, is_agent=False).rollouts == 0


async def test_abandoned_rollouts_are_paid_for_and_do_not_count_as_rollouts() -> None:
    async with InMemoryLightningStore() as store:
        for name in ("kept", "lost"):
            claim = await store.start_rollout(RolloutRequest(task=1, rollout_id=name, run_id="run"))
            await store.add_many_spans([proxied_call(name, claim.attempt.attempt_id)])
            done = await store.update_attempt(name, claim.attempt.attempt_id, status="succeeded", reward=1.0)
            if name == "lost":
                await set_aside(store, [done.rollout])
        spent = await spent_in_vain(store, "run")
    assert spent == Spent(calls=1, tokens=15, unpriced_calls=spent.unpriced_calls)
