import pytest

from agl.errors import ConfigError
from agl.proxy.accounts import CountedCall, Ledger
from agl.proxy.budgets import Budget, Budgets, Limits, answer_limit, hold
from agl.proxy.prices import Price
from agl.proxy.refusal import CallRefusedError
from agl.types import SpanQuery

PRICE = Price(input=1.0, output=2.0)  # USD per million tokens
HELLO = {"model": "m", "messages": []}


def budget_of(scope="rollout r1", **limits):
    return Budget(scope, Limits(**limits), Ledger(SpanQuery(), 0))


def spend(budget, **values):
    budget.ledger.add(CountedCall(agent=None, model="m", end="ok", **values))


def refused(budgets, request=HELLO, price=PRICE):
    with pytest.raises(CallRefusedError) as caught:
        hold(budgets, request, price)
    return caught.value


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_more_than_0(value):
    with pytest.raises(ConfigError, match=r"proxy\.budgets\.max_cost_per_run"):
        Budgets(max_cost_per_run=value)
    if value in (0, -1):
        with pytest.raises(ConfigError, match=r"proxy\.budgets\.max_calls_per_rollout"):
            Budgets(max_calls_per_rollout=value)


def test_a_rollouts_own_budget_replaces_what_it_names():
    budgets = Budgets(max_calls_per_rollout=5, max_tokens_per_rollout=100)
    assert budgets.of_rollout({"seed": 1}) == Limits(max_calls=5, max_tokens=100)
    assert budgets.of_rollout({"budget": {"max_calls": 9}}) == Limits(max_calls=9, max_tokens=100)
    assert budgets.of_rollout({"budget": {"max_tokens": None}}) == Limits(max_calls=5)


@pytest.mark.parametrize("given", [{"max_call": 5}, {"max_calls": 0}, {"max_calls": "many"}, 5, []])
def test_a_rollouts_budget_that_is_none_is_refused_and_named(given):
    with pytest.raises(CallRefusedError, match="metadata: budget") as caught:
        Budgets().of_rollout({"budget": given})
    assert (caught.value.status, caught.value.code) == (400, "invalid_budget")


def test_calls_under_way_count_so_that_no_call_is_too_many():
    budget = budget_of(max_calls=3)
    spend(budget)
    first, second = hold([budget], HELLO, None), hold([budget], HELLO, None)
    error = refused([budget])
    assert (error.status, error.code, error.retry) == (429, "budget_exceeded", False)
    assert str(error) == (
        "budget max_calls of rollout r1 is used up: the limit is 3, 1 calls were made and 2 are under way"
    )
    first.release()  # it failed before it was counted
    hold([budget], HELLO, None)
    second.release()


def test_what_a_call_may_sample_is_held_until_it_is_settled():
    budget = budget_of(max_tokens=1000)
    spend(budget, input_tokens=300, output_tokens=100)
    held = hold([budget], {**HELLO, "max_tokens": 400}, None)
    error = refused([budget], {**HELLO, "max_tokens": 201})
    assert str(error) == (
        "budget max_tokens of rollout r1 is used up: the limit is 1000, 400 tokens were used, calls under way may take"
        " 400, this call may take 201"
    )
    hold([budget], {**HELLO, "max_tokens": 200}, None).release()
    held.release()
    spend(budget, input_tokens=10, output_tokens=20)
    hold([budget], {**HELLO, "max_tokens": 570}, None)


def test_a_call_that_does_not_say_its_size_passes_until_the_tokens_are_used_up():
    budget = budget_of(max_tokens=100)
    spend(budget, input_tokens=99)
    hold([budget], HELLO, None).release()
    spend(budget, input_tokens=1)
    assert "100 tokens were used" in str(refused([budget]))


def test_cost_is_held_for_what_a_call_may_sample():
    budget = budget_of(max_cost=1.0)
    spend(budget, cost_usd=0.4)
    held = hold([budget], {**HELLO, "max_tokens": 250_000}, PRICE)  # 0.25 M at 2 USD
    assert held.cost == 0.5
    error = refused([budget], {**HELLO, "max_tokens": 100_000})
    assert str(error) == (
        "budget max_cost of rollout r1 is used up: the limit is 1 USD, 0.4 USD were spent, calls under way may take"
        " 0.5, this call may take 0.2"
    )
    held.release()
    assert budget.ledger.cost_under_way == 0.0


def test_a_budget_of_cost_refuses_a_model_without_a_price_instead_of_taking_it_for_free():
    error = refused([budget_of(max_cost=5.0)], price=None)
    assert (error.status, error.code, error.retry) == (400, "price_unknown", False)
    assert "max_cost of rollout r1" in str(error)
    assert "'m'" in str(error)
    assert "prices" in str(error)
    hold([budget_of(max_calls=1)], HELLO, None)


def test_a_model_that_is_free_passes_a_budget_of_cost():
    hold([budget_of(max_cost=0.01)], {**HELLO, "max_tokens": 10**9}, Price(input=0.0, output=0.0))


def test_a_call_that_one_budget_refuses_is_held_against_none():
    rollout, run = budget_of(), budget_of("run demo", max_calls=1)
    spend(run)
    assert "run demo" in str(refused([rollout, run]))
    assert (rollout.ledger.calls_under_way, run.ledger.calls_under_way) == (0, 0)


def test_a_hold_is_given_back_once():
    budget = budget_of()
    held = hold([budget], {**HELLO, "max_tokens": 5}, PRICE)
    held.release()
    held.release()
    assert (budget.ledger.calls_under_way, budget.ledger.tokens_under_way) == (0, 0)


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        ({}, 0),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_tokens": 5, "n": 3}, 15),
    ],
)
def test_the_most_tokens_that_an_answer_may_have(request_, limit):
    assert answer_limit(request_) == limit
