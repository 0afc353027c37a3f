"""Accounts: what calls took, per rollout, run and agent. All of it follows from the recorded spans.

The newest rollouts and runs are kept in memory. What a proxy did not see itself (it was restarted, or has forgotten a
rollout) is read back from the store where somebody needs it: a budget, or a person who asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from agl.store.base import SpanLog
from agl.types import Span, SpanQuery
from agl.types import attributes as key

log = logging.getLogger(__name__)

BUDGET_EXCEEDED = "budget_exceeded"
"""The error type of a call that a budget stopped before it was put to a model."""
PRICE_UNKNOWN = "price_unknown"
"""The same, of a call whose cost nobody could have known under a budget of cost."""
REPLAY_DIFFERS = "replay_differs"
"""The same, of a call that differs from the record that it must replay."""
NOT_ASKED = (
    BUDGET_EXCEEDED,
    PRICE_UNKNOWN,
    REPLAY_DIFFERS,
    "invalid_budget",
    "invalid_replay",
    "unknown_replay",
)
"""Error types of calls that the proxy refused: no model was asked."""
OTHERS = "(others)"
"""Stands for agents and models beyond those that are counted one by one: their names come from clients."""
SERVICE = "agl.proxy"
_MAX_ROLLOUTS = 4096
_MAX_RUNS = 256
_MAX_AGENTS = 256
_PREFIXES = (key.CHAT_SPAN_PREFIX, key.EMBEDDINGS_SPAN_PREFIX)
_PAGE = 100  # spans; with prompts of 16K tokens a page is some megabytes

CallEnd = Literal["ok", "failed", "refused"]


class CountedCall(NamedTuple):
    """What a recorded call adds to accounts. A tuple, for a frozen dataclass takes three times as long.

    Args:
        agent: its name, None where the URL had none.
        model: as the upstream was asked for it.
        end: ``refused`` by a budget or a replay, ``failed`` in any other way, or ``ok``.
        replayed: answered from a record and not by a model.
        cost_usd: None where it is not known.
        first_chunk_seconds: of a stream, from dispatch.
    """

    agent: str | None
    model: str
    end: CallEnd
    replayed: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    is_unpriced: bool = False
    latency_seconds: float = 0.0
    first_chunk_seconds: float | None = None


def call_from_span(span: Span) -> CountedCall | None:
    """Return what the span of a call says for accounts, None for a span that is no call of the proxy."""
    if not span.name.startswith(_PREFIXES) or span.resource.get("service.name") != SERVICE:
        return None
    said = span.attributes
    error = said.get(key.ERROR_TYPE)
    refused = error in NOT_ASKED
    replayed = said.get(key.REPLAY) == "hit" or said.get(key.CACHE) == "hit"
    cost = said.get(key.COST_USD)
    was_asked = not refused and not replayed
    # A status of 4xx or 5xx is the provider's own refusal, which nobody charges for.
    is_charged = was_asked and not (isinstance(error, str) and error.isdigit())
    return CountedCall(
        agent=said.get(key.AGENT),
        model=str(said.get(key.REQUEST_MODEL, "")),
        end="refused" if refused else "failed" if span.status.code == "error" else "ok",
        replayed=replayed,
        input_tokens=_count(said, key.INPUT_TOKENS) if was_asked else 0,
        output_tokens=_count(said, key.OUTPUT_TOKENS) if was_asked else 0,
        cached_tokens=_count(said, key.CACHED_TOKENS) if was_asked else 0,
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
        is_unpriced=is_charged and cost is None,
        latency_seconds=float(said.get(key.LATENCY_SECONDS, 0.0)),
        first_chunk_seconds=said.get(key.TIME_TO_FIRST_CHUNK),
    )


@dataclass(slots=True)
class Account:
    """Sums over calls."""

    calls: int = 0
    """Put to a model, whatever became of them."""
    failed_calls: int = 0
    """Of these, those without a whole answer."""
    refused_calls: int = 0
    """By a budget or a replay; not among ``calls``."""
    replayed_calls: int = 0
    """Answered from a record; not among ``calls``."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input tokens, those that the provider read from its cache."""
    cost_usd: float = 0.0
    """Of the calls whose cost is known."""
    calls_without_price: int = 0
    """Whose cost is not known, and not in ``cost_usd``."""
    latency_seconds: float = 0.0
    """Of all ``calls``, added up."""
    streamed_calls: int = 0
    first_chunk_seconds: float = 0.0
    """Times to the first chunk of ``streamed_calls``, added up."""

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def add(self, call: CountedCall) -> None:
        """Count a call."""
        if call.end == "refused":
            self.refused_calls += 1
            return
        if call.replayed:
            self.replayed_calls += 1
            return
        self.calls += 1
        self.failed_calls += call.end == "failed"
        self.input_tokens += call.input_tokens
        self.output_tokens += call.output_tokens
        self.cached_tokens += call.cached_tokens
        self.cost_usd += call.cost_usd or 0.0
        self.calls_without_price += call.is_unpriced
        self.latency_seconds += call.latency_seconds
        if call.first_chunk_seconds is not None:
            self.streamed_calls += 1
            self.first_chunk_seconds += call.first_chunk_seconds

    def as_json(self) -> dict[str, Any]:
        """Return the sums, and the means of the times."""
        return {
            "calls": self.calls,
            "failed_calls": self.failed_calls,
            "refused_calls": self.refused_calls,
            "replayed_calls": self.replayed_calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "cost_usd": self.cost_usd,
            "calls_without_price": self.calls_without_price,
            "mean_latency_seconds": self.latency_seconds / self.calls if self.calls else None,
            "mean_first_chunk_seconds": (
                self.first_chunk_seconds / self.streamed_calls if self.streamed_calls else None
            ),
        }


@dataclass(slots=True, eq=False)
class Ledger:
    """The account of one rollout or run, with what its calls under way may still take."""

    query: SpanQuery
    """Its spans in the store."""
    since_ns: int
    """When the first call that was counted as it came began: those before are read back from the store."""
    account: Account = field(default_factory=Account)
    agents: dict[str, Account] = field(default_factory=dict[str, Account])
    calls_under_way: int = 0
    tokens_under_way: int = 0
    """That these calls may sample, as far as they say so."""
    cost_under_way: float = 0.0
    """Of these tokens."""
    reading: asyncio.Task[None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether calls from before ``since_ns`` are counted."""
        reading = self.reading
        if reading is None or not reading.done() or reading.cancelled():
            return False
        return reading.exception() is None

    def begin(self, started_ns: int) -> None:
        """Take note of a call that is counted as it comes."""
        self.since_ns = min(self.since_ns, started_ns)

    def add(self, call: CountedCall) -> None:
        """Count a call, and for its agent."""
        self.account.add(call)
        name = call.agent or ""
        account = self.agents.get(name)
        if account is None:
            if len(self.agents) >= _MAX_AGENTS:
                name = OTHERS
            account = self.agents.setdefault(name, Account())
        account.add(call)

    def as_json(self) -> dict[str, Any]:
        """Return the account, and that of every agent."""
        return {
            **self.account.as_json(),
            "calls_under_way": self.calls_under_way,
            "complete": self.is_complete,
            "agents": {name: account.as_json() for name, account in sorted(self.agents.items())},
        }


class Accounts:
    """The ledgers of the newest rollouts and runs; those with calls under way are never forgotten."""

    def __init__(
        self,
        store: SpanLog,
        *,
        now_ns: Callable[[], int],
        max_rollouts: int = _MAX_ROLLOUTS,
        max_runs: int = _MAX_RUNS,
    ) -> None:
        self._store = store
        self._now_ns = now_ns
        self._max_rollouts = max_rollouts
        self._max_runs = max_runs
        self._rollouts: OrderedDict[str, Ledger] = OrderedDict()
        self._runs: OrderedDict[str, Ledger] = OrderedDict()
        self.started_ns = now_ns()
        self.total = Account()
        """Of all calls since ``started_ns``."""

    def of_rollout(self, rollout_id: str) -> Ledger:
        """Return the rollout's ledger, a new one where it is not known."""
        known = self._rollouts.get(rollout_id)
        if known is not None:
            self._rollouts.move_to_end(rollout_id)
            return known
        query = SpanQuery(rollout_id=rollout_id, limit=_PAGE)
        return self._added(self._rollouts, rollout_id, query, self._max_rollouts)

    def of_run(self, run_id: str) -> Ledger:
        """Return the run's ledger, a new one where it is not known."""
        known = self._runs.get(run_id)
        if known is not None:
            self._runs.move_to_end(run_id)
            return known
        query = SpanQuery(run_id=run_id, limit=_PAGE)
        return self._added(self._runs, run_id, query, self._max_runs)

    async def complete(self, ledger: Ledger) -> None:
        """Return when the calls that this process did not count are read back from the store.

        Raises:
            StoreError: they cannot be read; the next one who asks tries again.
        """
        if ledger.is_complete:
            return
        if ledger.reading is None or ledger.reading.done():
            ledger.reading = asyncio.create_task(self._read_back(ledger))
        await asyncio.shield(ledger.reading)  # others may wait for it too

    @property
    def calls_under_way(self) -> int:
        """Put to a model and not answered yet."""
        return sum(ledger.calls_under_way for ledger in self._rollouts.values())

    def add(self, call: CountedCall, *, rollout_id: str, run_id: str | None, started_ns: int) -> None:
        """Count a call for its rollout, its run and their agents."""
        self.total.add(call)
        for ledger in (self.of_rollout(rollout_id), None if run_id is None else self.of_run(run_id)):
            if ledger is not None:
                ledger.begin(started_ns)
                ledger.add(call)

    def runs(self) -> Mapping[str, Ledger]:
        """Return the runs that have called since the start, the newest last."""
        return self._runs

    async def _read_back(self, ledger: Ledger) -> None:
        found: list[tuple[int, CountedCall]] = []
        for prefix in _PREFIXES:
            async for span in self._spans(ledger.query.model_copy(update={"name_prefix": prefix})):
                call = call_from_span(span)
                if call is not None:
                    found.append((span.start_time_ns, call))
        for started_ns, call in found:
            if started_ns < ledger.since_ns:
                ledger.add(call)

    async def _spans(self, query: SpanQuery) -> AsyncGenerator[Span]:
        while True:
            page = await self._store.query_spans(query)
            for span in page.items:
                yield span
            if page.next_cursor is None:
                return
            if query.cursor is None:
                log.info("the calls of %s are read back from the store", _named(query))
            query = query.model_copy(update={"cursor": page.next_cursor})

    def _added(self, ledgers: OrderedDict[str, Ledger], name: str, query: SpanQuery, limit: int) -> Ledger:
        made = ledgers[name] = Ledger(query, self._now_ns())
        if len(ledgers) > limit:
            idle = (
                old for old, ledger in ledgers.items() if not ledger.calls_under_way and ledger is not made
            )
            forgotten = next(idle, None)
            if forgotten is not None:
                del ledgers[forgotten]
        return made


async def accounts_answer(accounts: Accounts, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``GET /accounts`` answers: one rollout, one run, or the runs that this proxy has seen.

    Args:
        accounts: to read from.
        asked: the URL's parameters: ``rollout_id`` or ``run_id``, whose calls are then complete.

    Raises:
        StoreError: their earlier calls cannot be read.
    """
    if "rollout_id" in asked:
        ledger = accounts.of_rollout(asked["rollout_id"])
        await accounts.complete(ledger)
        return {"rollout_id": asked["rollout_id"], **ledger.as_json()}
    if "run_id" in asked:
        ledger = accounts.of_run(asked["run_id"])
        await accounts.complete(ledger)
        return {"run_id": asked["run_id"], **ledger.as_json()}
    return {
        "since": accounts.started_ns / 1e9,
        "total": accounts.total.as_json(),
        "runs": {run_id: ledger.as_json() for run_id, ledger in accounts.runs().items()},
    }


def _named(query: SpanQuery) -> str:
    return f"run {query.run_id}" if query.rollout_id is None else f"rollout {query.rollout_id}"


def _count(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    return value if isinstance(value, int) else 0
