"""Admission: what a call passes before it reaches the upstream, and what is counted of it afterwards.

First the records: the rollout that it replays, then the cache; an answer from there costs nothing. Then the budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agl.proxy.accounts import Accounts, call_from_span
from agl.proxy.budgets import Budget, Budgets, Hold, hold
from agl.proxy.cache import CacheMode, ResponseCache
from agl.proxy.call_metrics import CallMetrics
from agl.proxy.canonical import token_count
from agl.proxy.prices import Prices, cost_of
from agl.proxy.record import Call
from agl.proxy.recorded import RecordedAnswer, recorded_answer
from agl.proxy.replays import Replays, replay_from_metadata, request_hash
from agl.store.base import SpanLog
from agl.types import Span
from agl.types import attributes as key


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose call it is.

    Args:
        rollout_id: of the attempt.
        attempt_id: the attempt that calls.
        agent: its name, where the URL has one.
        run_id: of the rollout.
        metadata: of the rollout: its own budget, and what it replays.
    """

    rollout_id: str
    attempt_id: str
    agent: str | None = None
    run_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def names(self) -> tuple[str, str, str | None]:
        """The one who makes one call after the other."""
        return self.rollout_id, self.attempt_id, self.agent


@dataclass(slots=True, kw_only=True)
class Passage:
    """A call that was admitted."""

    caller: Caller
    request_hash: str = ""
    marks: dict[str, Any] = field(default_factory=dict[str, Any])
    """What its span says beside the call itself."""
    recorded: RecordedAnswer | None = None
    """Answers it in place of the upstream."""
    hold: Hold | None = None

    def close(self) -> None:
        """Give back what is held for it."""
        if self.hold is not None:
            self.hold.release()


class Admission:
    """Admits and counts the calls of all attempts.

    Args:
        store: the record.
        budgets: the limits.
        prices: of models.
        cache: which requests are answered from the record of an equal one; None is none.
        now_ns: the wall clock.
    """

    def __init__(
        self,
        store: SpanLog,
        *,
        budgets: Budgets,
        prices: Prices,
        cache: CacheMode | None,
        now_ns: Callable[[], int],
    ) -> None:
        self._budgets = budgets
        self._prices = prices
        self._cache = ResponseCache(store, cache)
        self._replays = Replays(store)
        self.accounts = Accounts(store, now_ns=now_ns)
        self.metrics = CallMetrics(lambda: self.accounts.calls_under_way)

    async def admit(self, caller: Caller, call: Call, chat: Mapping[str, Any]) -> Passage:
        """Let the call pass, with the recorded answer where there is one; ``close`` the passage when it has ended.

        Args:
            caller: whose it is.
            call: as the upstream is asked.
            chat: as the agent asked.

        Raises:
            CallRefusedError: 429 over budget, 400 without a price, 409 differs from the replayed record, ...
            StoreError: the record cannot be read.
        """
        passage = Passage(caller=caller, request_hash=request_hash(chat))
        passage.marks[key.REQUEST_HASH] = passage.request_hash
        await self._replay(passage)
        if passage.recorded is None:
            await self._look_up(passage, call, with_logprobs=bool(chat.get("logprobs")))
        if passage.recorded is None:
            passage.hold = await self._held(caller, call)
        return passage

    async def admit_embeddings(self, caller: Caller, call: Call) -> Passage:
        """Let a request for embeddings pass, which only budgets stand before.

        Raises:
            CallRefusedError: 429 over budget, 400 without a price.
            StoreError: what was used cannot be read.
        """
        return Passage(caller=caller, hold=await self._held(caller, call))

    def settled(
        self, caller: Caller, passage: Passage | None, span: Span, answer: Mapping[str, Any] | None
    ) -> Span:
        """Count a call that has ended and return its span with its cost and marks.

        Args:
            caller: whose it was.
            passage: None where it was refused.
            span: the record so far.
            answer: what came of its answer.
        """
        said = dict(span.attributes)
        if passage is not None:
            said |= passage.marks
            if span.status.code == "error":
                said.pop(key.CACHE_KEY, None)
                self._replays.failed(caller.names, passage.request_hash)
            cost = 0.0 if passage.recorded is not None else self._cost(said, answer)
            if cost is not None:
                said[key.COST_USD] = cost
        marked = span.changed(attributes=said)
        counted = call_from_span(marked)
        if counted is not None:
            self.accounts.add(
                counted,
                rollout_id=caller.rollout_id,
                run_id=caller.run_id,
                started_ns=span.start_time_ns,
            )
            self.metrics.add(counted)
        if passage is not None:
            passage.close()
        return marked

    def _cost(self, said: dict[str, Any], answer: Mapping[str, Any] | None) -> float | None:
        usage = None if answer is None else usage_of(answer)
        if usage is None:
            return None
        said.setdefault(key.INPUT_TOKENS, usage["prompt_tokens"])
        said.setdefault(key.OUTPUT_TOKENS, usage["completion_tokens"])
        for model in (said.get(key.REQUEST_MODEL), said.get(key.RESPONSE_MODEL)):
            price = self._prices.price_of(model) if isinstance(model, str) else None
            if price is not None:
                return cost_of(usage, price)
        return None

    async def _replay(self, passage: Passage) -> None:
        asked = replay_from_metadata(passage.caller.metadata)
        if asked is None:
            return
        found = await self._replays.find(asked, passage.caller.names, passage.request_hash)
        if found.mark is not None:
            passage.marks[key.REPLAY] = found.mark
        if found.span is not None:
            passage.recorded = recorded_answer(found.span)

    async def _look_up(self, passage: Passage, call: Call, *, with_logprobs: bool) -> None:
        cache_key = self._cache.key_of(
            call.request,
            policy_version=call.policy_version,
            run_id=passage.caller.run_id,
            with_logprobs=with_logprobs,
        )
        if cache_key is None:
            return
        found = await self._cache.find(cache_key)
        if found is not None:
            passage.recorded = recorded_answer(found)
        if passage.recorded is None:
            passage.marks[key.CACHE_KEY] = cache_key
        else:
            passage.marks[key.CACHE] = "hit"

    async def _held(self, caller: Caller, call: Call) -> Hold:
        while True:  # ledgers that nobody holds may be forgotten during the wait
            budgets = self._budgets_of(caller)
            for budget in budgets:
                budget.ledger.begin(call.started_ns)
            limited = [budget.ledger for budget in budgets if not budget.limits.are_open]
            if all(ledger.is_complete for ledger in limited):
                break
            for ledger in limited:
                await self.accounts.complete(ledger)
        costs_count = any(budget.limits.max_cost is not None for budget in budgets)
        price = self._prices.price_of(call.request["model"]) if costs_count else None
        return hold(budgets, call.request, price)

    def _budgets_of(self, caller: Caller) -> list[Budget]:
        limits = self._budgets.of_rollout(caller.metadata)
        rollout = self.accounts.of_rollout(caller.rollout_id)
        budgets = [Budget(f"rollout {caller.rollout_id}", limits, rollout)]
        if caller.run_id is not None:
            run = self.accounts.of_run(caller.run_id)
            budgets.append(Budget(f"run {caller.run_id}", self._budgets.run, run))
        return budgets


def usage_of(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return an answer's usage; of one that was cut off before its usage, what its exact ids say."""
    usage = answer.get("usage")
    if isinstance(usage, dict):
        told: dict[str, Any] = {"completion_tokens": 0} if "data" in answer else {}  # of embeddings
        told |= cast("dict[str, Any]", usage)
        if None not in (token_count(told, "prompt_tokens"), token_count(told, "completion_tokens")):
            return told
    prompt = answer.get("prompt_token_ids")
    sampled = [
        choice.get("token_ids") for choice in cast("list[dict[str, Any]]", answer.get("choices") or [])
    ]
    if not isinstance(prompt, list) or not all(isinstance(ids, list) for ids in sampled):
        return None
    count = sum(len(ids) for ids in sampled if ids is not None)
    return {"prompt_tokens": len(cast("list[int]", prompt)), "completion_tokens": count}
