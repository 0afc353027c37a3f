"""Budgets: hard limits on calls, tokens and cost of a rollout and of a run.

A call is held against its budgets before it is put to a model, with all that it says about its size, and settled with
what it took. So calls that run side by side never exceed a number of calls, and exceed the others only by what nobody
knows in advance: prompts, and answers without ``max_tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pydantic import Field, ValidationError

from agl.errors import ConfigError
from agl.proxy.accounts import BUDGET_EXCEEDED, PRICE_UNKNOWN, Ledger
from agl.proxy.prices import Price, cost_of
from agl.proxy.refusal import CallRefusedError
from agl.types import Record

METADATA = "budget"
"""The key of a rollout's metadata that replaces limits of the settings for it."""


class Limits(Record):
    """What may be taken; None is no limit."""

    max_cost: float | None = Field(default=None, gt=0)
    """USD."""
    max_calls: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    """Input and output."""

    @property
    def are_open(self) -> bool:
        """Whether nothing is limited."""
        return self.max_cost is None and self.max_calls is None and self.max_tokens is None


class Budgets:
    """Hard limits; None is no limit. A rollout's ``metadata["budget"]`` (``max_cost``, ...) replaces its own.

    Args:
        max_cost_per_rollout: USD.
        max_calls_per_rollout: calls that are put to a model; answers from records are free.
        max_tokens_per_rollout: input and output.
        max_cost_per_run: USD, of all rollouts of a run.
        max_calls_per_run: of all rollouts of a run.
        max_tokens_per_run: of all rollouts of a run.
    """

    def __init__(
        self,
        *,
        max_cost_per_rollout: float | None = None,
        max_calls_per_rollout: int | None = None,
        max_tokens_per_rollout: int | None = None,
        max_cost_per_run: float | None = None,
        max_calls_per_run: int | None = None,
        max_tokens_per_run: int | None = None,
    ) -> None:
        self.rollout = _limits("rollout", max_cost_per_rollout, max_calls_per_rollout, max_tokens_per_rollout)
        self.run = _limits("run", max_cost_per_run, max_calls_per_run, max_tokens_per_run)

    def of_rollout(self, metadata: Mapping[str, Any]) -> Limits:
        """Return the limits of a rollout.

        Raises:
            CallRefusedError: 400, its metadata has a budget that is none.
        """
        given = metadata.get(METADATA)
        if given is None:
            return self.rollout
        try:
            own = Limits.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, (METADATA, *first["loc"])))
            message = f"the rollout's metadata: {place}: {first['msg']}; limits are {', '.join(Limits.model_fields)}"
            raise CallRefusedError(message, status=400, code="invalid_budget", retry=False) from error
        return self.rollout.model_copy(update=own.model_dump(exclude_unset=True))


class Budget(NamedTuple):
    """Limits, and what they are compared with."""

    scope: str
    """``rollout r1``, ``run demo``: whose they are."""
    limits: Limits
    ledger: Ledger


@dataclass(slots=True, eq=False)
class Hold:
    """What one call under way may still take of its budgets."""

    ledgers: Sequence[Ledger]
    tokens: int
    cost: float
    is_released: bool = False

    def release(self) -> None:
        """Give it back, once: what the call took is in the accounts by now."""
        if self.is_released:
            return
        self.is_released = True
        for ledger in self.ledgers:
            ledger.calls_under_way -= 1
            ledger.tokens_under_way -= self.tokens
            ledger.cost_under_way -= self.cost
            if not ledger.calls_under_way:
                ledger.cost_under_way = 0.0  # without what rounding left


def hold(budgets: Sequence[Budget], request: Mapping[str, Any], price: Price | None) -> Hold:
    """Hold a call against its budgets, all of them or, when it is refused, none.

    Args:
        budgets: of its rollout and its run; their ledgers are complete where they have limits.
        request: what the upstream is asked.
        price: of the model, None where it is not known.

    Raises:
        CallRefusedError: 429, a budget is used up; 400, one of cost and a model without a known price.
    """
    tokens = answer_limit(request)
    cost = None
    if price is not None:
        cost = cost_of({"prompt_tokens": 0, "completion_tokens": tokens}, price)
    for budget in budgets:
        if budget.limits.are_open:
            continue
        _check_calls(budget)
        _check_tokens(budget, tokens)
        _check_cost(budget, cost, model=str(request["model"]))
    held = Hold([budget.ledger for budget in budgets], tokens, cost or 0.0)
    for ledger in held.ledgers:
        ledger.calls_under_way += 1
        ledger.tokens_under_way += held.tokens
        ledger.cost_under_way += held.cost
    return held


def answer_limit(request: Mapping[str, Any]) -> int:
    """Return how many tokens the request lets the model sample, 0 where it does not say."""
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    choices = request.get("n") or 1
    return limit * choices if isinstance(limit, int) and isinstance(choices, int) else 0


def _check_calls(budget: Budget) -> None:
    limit, ledger = budget.limits.max_calls, budget.ledger
    if limit is not None and ledger.account.calls + ledger.calls_under_way >= limit:
        used = f"{ledger.account.calls} calls were made and {ledger.calls_under_way} are under way"
        raise _exceeded(budget, "max_calls", limit, used)


def _check_tokens(budget: Budget, tokens: int) -> None:
    limit, ledger = budget.limits.max_tokens, budget.ledger
    taken = ledger.account.tokens + ledger.tokens_under_way
    if limit is not None and (taken >= limit or taken + tokens > limit):
        used = f"{ledger.account.tokens} tokens were used{_under_way(ledger.tokens_under_way, tokens)}"
        raise _exceeded(budget, "max_tokens", limit, used)


def _check_cost(budget: Budget, cost: float | None, *, model: str) -> None:
    limit, ledger = budget.limits.max_cost, budget.ledger
    if limit is None:
        return
    if cost is None:
        message = (
            f"budget max_cost of {budget.scope}: the price of model {model!r} is not known, so nobody can say when "
            f"{limit:g} USD are spent; give it in the proxy's setting prices"
        )
        raise CallRefusedError(message, status=400, code=PRICE_UNKNOWN, retry=False)
    taken = ledger.account.cost_usd + ledger.cost_under_way
    if taken >= limit or taken + cost > limit:
        used = f"{ledger.account.cost_usd:.6g} USD were spent{_under_way(ledger.cost_under_way, cost)}"
        raise _exceeded(budget, "max_cost", f"{limit:g} USD", used)


def _under_way(held: float, asked: float) -> str:
    parts = [f", calls under way may take {held:.6g}"] if held else []
    return "".join([*parts, f", this call may take {asked:.6g}"] if asked else parts)


def _exceeded(budget: Budget, name: str, limit: object, used: str) -> CallRefusedError:
    message = f"budget {name} of {budget.scope} is used up: the limit is {limit}, {used}"
    return CallRefusedError(message, status=429, code=BUDGET_EXCEEDED, retry=False)


def _limits(scope: str, cost: float | None, calls: int | None, tokens: int | None) -> Limits:
    given = {"max_cost": cost, "max_calls": calls, "max_tokens": tokens}
    for name, value in given.items():
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"proxy.budgets.{name}_per_{scope}={value}: more than 0, or null for no limit")
    return Limits(**cast("dict[str, Any]", given))
