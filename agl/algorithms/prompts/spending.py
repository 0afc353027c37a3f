"""What a search takes, its limits, and what is likely to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agl.algorithms.prompts.endings import SearchEndedError
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.rollouts import ABANDONED
from agl.proxy.accounts import call_from_span
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts, iter_spans
from agl.types import MetricQuery, Rollout, RolloutQuery, Span, SpanQuery

ELAPSED = "time/elapsed_seconds"
"""Metric: how long the search has been at work, in all processes of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was taken.

    Args:
        rollouts: of the agent.
        calls: of models, the agent's and the optimizer's.
        tokens: of these, input and output.
        cost_usd: of the calls whose price is known.
        unpriced_calls: calls whose price is not known.
        seconds: of wall time, or of rollouts laid end to end where it stands for a single one.
    """

    rollouts: int = 0
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            rollouts=self.rollouts + other.rollouts,
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            seconds=self.seconds + other.seconds,
        )

    def of_calls(self, share: float) -> Spent:
        """Return this share of calls, tokens and cost: what more of the same is likely to take."""
        return Spent(
            calls=round(self.calls * share),
            tokens=round(self.tokens * share),
            cost_usd=self.cost_usd * share,
        )

    def __str__(self) -> str:
        cost = "cost unknown" if self.calls and self.unpriced_calls == self.calls else f"${self.cost_usd:.4f}"
        if 0 < self.unpriced_calls < self.calls:
            cost += f" and {self.unpriced_calls} calls without a price"
        return (
            f"{self.rollouts} rollouts, {self.calls} calls, {self.tokens} tokens, {cost},"
            f" {self.seconds / 60:.1f} minutes"
        )


class Budget:
    """Hard limits of a search; None is no limit. The search ends before it would pass one, with the best so far.

    Calls, tokens and cost of a batch are known only when it is done; the mean so far decides whether it begins, so
    they can be passed by the difference to it. Evaluations before and after the search are not counted.

    Args:
        max_rollouts: of the agent.
        max_calls: of models, the agent's and the optimizer's.
        max_tokens: input and output, of both.
        max_cost: USD, of the calls whose price is known.
        max_minutes: of wall time, over all processes of the run; what is under way then is cancelled.
    """

    def __init__(
        self,
        *,
        max_rollouts: int | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        max_minutes: float | None = None,
    ) -> None:
        limits = {
            "max_rollouts": max_rollouts,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "max_cost": max_cost,
            "max_minutes": max_minutes,
        }
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise ConfigError(f"budget.{name}={value} must be above 0, or null for no limit")
        self.max_rollouts = max_rollouts
        self.max_calls = max_calls
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.max_minutes = max_minutes

    @property
    def counts_calls(self) -> bool:
        """Whether a limit is one of calls, tokens or cost, which stand in the record of each rollout."""
        return any(limit is not None for limit in (self.max_calls, self.max_tokens, self.max_cost))

    def exceeded_by(self, spent: Spent) -> str | None:
        """Return the first limit that this is beyond, as ``max_cost=0.5``, or None."""
        taken = {
            "max_rollouts": (spent.rollouts, self.max_rollouts),
            "max_calls": (spent.calls, self.max_calls),
            "max_tokens": (spent.tokens, self.max_tokens),
            "max_cost": (spent.cost_usd, self.max_cost),
            "max_minutes": (spent.seconds / 60, self.max_minutes),
        }
        return next(
            (
                f"{name}={limit:g}"
                for name, (value, limit) in taken.items()
                if limit is not None and value > limit
            ),
            None,
        )

    def check(self, spent: Spent, more: Spent) -> None:
        """Check that something may begin.

        Args:
            spent: what was taken so far.
            more: what it takes, as far as that is known or likely.

        Raises:
            SearchEndedError: it would pass a limit; the message names it.
            RunStoppedError: there is a limit of cost, and calls whose price nobody knows.
        """
        if self.max_rollouts is not None and spent.rollouts + more.rollouts > self.max_rollouts:
            raise SearchEndedError(
                f"the next {more.rollouts} rollouts would pass budget.max_rollouts={self.max_rollouts}"
                f" (spent: {spent})",
                more=self._doubled("max_rollouts", at_least=spent.rollouts + more.rollouts),
            )
        self.check_prices(spent)
        limit = self.exceeded_by(spent + more)
        if limit is not None:
            raise SearchEndedError(
                f"budget.{limit} is spent, or would be (spent: {spent})",
                more=self._doubled(limit.partition("=")[0]),
            )

    def check_prices(self, spent: Spent) -> None:
        """Check that a limit of cost can be kept.

        Raises:
            RunStoppedError: there are calls whose price nobody knows.
        """
        if self.max_cost is not None and spent.unpriced_calls:
            raise RunStoppedError(
                f"algorithm.budget.max_cost={self.max_cost:g} cannot be kept: {spent.unpriced_calls} calls have no"
                " known price; give it, as in proxy.prices.MODEL={input: 0.5, output: 1.5} (USD per million tokens)"
            )

    def _doubled(self, name: str, *, at_least: int = 0) -> str:
        """The setting with twice the limit, as ``budget.max_minutes=30``, or with what is needed where that is more."""
        return f"budget.{name}={max(2 * getattr(self, name), at_least):g}"


def spent_in(rollout: Rollout, spans: Sequence[Span], *, is_agent: bool = True) -> Spent:
    """Return what one rollout took, by its recorded calls.

    Args:
        rollout: as it ended.
        spans: of all its attempts.
        is_agent: False where a model was asked by the search itself.
    """
    calls = [call for span in spans if (call := call_from_span(span)) and call.end != "refused"]
    asked = [call for call in calls if not call.replayed]
    begun, ended = rollout.started_at, rollout.finished_at
    return Spent(
        rollouts=int(is_agent),
        calls=len(asked),
        tokens=sum(call.input_tokens + call.output_tokens for call in asked),
        cost_usd=sum(call.cost_usd or 0.0 for call in asked),
        unpriced_calls=sum(call.is_unpriced for call in asked),
        seconds=ended - begun if begun is not None and ended is not None else 0.0,
    )


async def spent_in_rollout(store: LightningStore, rollout: Rollout, *, is_agent: bool = True) -> Spent:
    """Return what a rollout in the store took, attempts that were tried again included."""
    query = SpanQuery(rollout_id=rollout.rollout_id)
    return spent_in(rollout, [span async for span in iter_spans(store, query)], is_agent=is_agent)


async def spent_in_vain(store: LightningStore, run_id: str) -> Spent:
    """Return the calls, tokens and cost of rollouts that were abandoned and are run again.

    Their calls are paid for; as rollouts they do not count, so that a resumed run may do what a whole one may.
    """
    spent = Spent()
    query = RolloutQuery(run_id=run_id, mode="train")
    async for rollout in iter_rollouts(store, query):
        if ABANDONED in rollout.metadata:
            spent += replace(await spent_in_rollout(store, rollout, is_agent=False), seconds=0.0)
    return spent


async def seconds_so_far(store: LightningStore, run_id: str, first_step: int = 0) -> float:
    """Return how long earlier processes of a resumed run were at work: up to the last batch that they ended."""
    query = MetricQuery(run_id=run_id, names=(ELAPSED,), min_step=first_step)
    return max((point.value for point in (await store.query_metrics(query)).items), default=0.0)
