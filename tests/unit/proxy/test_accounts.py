import asyncio

import pytest

from agl.errors import StoreUnavailableError
from agl.proxy.accounts import Accounts, CountedCall, accounts_answer, call_from_span
from agl.types import Page, Span, SpanStatus
from agl.types import attributes as key

SECOND = 10**9
NOW = 3 * SECOND


def span_of(number=1, *, started=0, rollout_id="r1", name="chat m", service="agl.proxy", status="ok", **said):
    named = {getattr(key, field.upper()): value for field, value in said.items()}
    return Span(
        span_id=f"{number:016x}",
        trace_id="1" * 32,
        name=name,
        status=SpanStatus(code=status),
        attributes={key.REQUEST_MODEL: "m", **named},
        resource={"service.name": service},
        start_time_ns=started,
        end_time_ns=started + SECOND,
        rollout_id=rollout_id,
        attempt_id="a1",
    )


class Spans:
    """A store's spans, two a page; ``failure`` is raised instead of an answer."""

    def __init__(self, *spans):
        self.spans = list(spans)
        self.queries = []
        self.failure = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def query_spans(self, query):
        self.queries.append(query)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        start = int(query.cursor or 0)
        named = [s for s in self.spans if s.name.startswith(query.name_prefix)]
        found = [s for s in named if query.rollout_id in (None, s.rollout_id)]
        following = str(start + 2) if start + 2 < len(found) else None
        return Page[Span](items=found[start : start + 2], next_cursor=following)


def call(**values):
    return CountedCall(**{"agent": None, "model": "m", "end": "ok", **values})


def test_a_span_says_what_its_call_took():
    counted = call_from_span(
        span_of(
            agent="writer",
            input_tokens=100,
            output_tokens=7,
            cached_tokens=64,
            cost_usd=0.25,
            latency_seconds=2.0,
            time_to_first_chunk=0.5,
        )
    )
    assert counted == CountedCall(
        agent="writer",
        model="m",
        end="ok",
        input_tokens=100,
        output_tokens=7,
        cached_tokens=64,
        cost_usd=0.25,
        latency_seconds=2.0,
        first_chunk_seconds=0.5,
    )


def test_spans_that_are_no_calls_of_the_proxy_say_nothing():
    assert call_from_span(span_of(name="agl.reward")) is None
    assert call_from_span(span_of(service="my-agent")) is None


@pytest.mark.parametrize(
    ("said", "end", "is_unpriced"),
    [
        ({}, "ok", True),
        ({"cost_usd": 0.0}, "ok", False),
        ({"status": "error", "error_type": "timeout"}, "failed", True),
        (
            {"status": "error", "error_type": "503"},
            "failed",
            False,
        ),  # the provider refused, and charges nothing
        ({"status": "error", "error_type": "budget_exceeded"}, "refused", False),
        ({"status": "error", "error_type": "replay_differs"}, "refused", False),
    ],
)
def test_an_unknown_cost_is_unknown_where_something_may_have_been_charged(said, end, is_unpriced):
    counted = call_from_span(span_of(**said))
    assert (counted.end, counted.is_unpriced) == (end, is_unpriced)


@pytest.mark.parametrize("mark", ["replay", "cache"])
def test_an_answer_from_a_record_takes_nothing(mark):
    counted = call_from_span(span_of(input_tokens=5, output_tokens=5, cost_usd=0.0, **{mark: "hit"}))
    assert (counted.replayed, counted.input_tokens, counted.output_tokens) == (True, 0, 0)


def test_a_missed_replay_was_answered_by_a_model():
    assert call_from_span(span_of(input_tokens=5, replay="miss")).input_tokens == 5


def test_calls_are_added_up_for_their_rollout_their_run_and_their_agents():
    accounts = Accounts(Spans(), now_ns=lambda: 0)
    priced = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cached_tokens": 4,
        "cost_usd": 0.5,
        "latency_seconds": 2.0,
    }
    accounts.add(
        call(agent="writer", first_chunk_seconds=0.25, **priced),
        rollout_id="r1",
        run_id="demo",
        started_ns=NOW,
    )
    accounts.add(call(agent="writer", **priced), rollout_id="r2", run_id="demo", started_ns=NOW)
    accounts.add(
        call(end="failed", is_unpriced=True, latency_seconds=5.0),
        rollout_id="r1",
        run_id="demo",
        started_ns=NOW,
    )
    accounts.add(call(end="refused"), rollout_id="r1", run_id="demo", started_ns=NOW)
    accounts.add(call(replayed=True), rollout_id="r1", run_id=None, started_ns=NOW)
    run = accounts.of_run("demo").as_json()
    assert run | {"agents": None} == {
        "calls": 3,
        "failed_calls": 1,
        "refused_calls": 1,
        "replayed_calls": 0,
        "input_tokens": 20,
        "output_tokens": 10,
        "cached_tokens": 8,
        "cost_usd": 1.0,
        "calls_without_price": 1,
        "mean_latency_seconds": 3.0,
        "mean_first_chunk_seconds": 0.25,
        "calls_under_way": 0,
        "complete": False,
        "agents": None,
    }
    assert {name: agent["calls"] for name, agent in run["agents"].items()} == {"": 1, "writer": 2}
    assert accounts.of_rollout("r1").account.calls == 2
    assert accounts.of_rollout("r1").account.replayed_calls == 1
    assert accounts.total.calls == 3


async def test_a_restarted_proxy_reads_back_what_was_called_before_once():
    store = Spans(*(span_of(n, started=n * SECOND, input_tokens=10, output_tokens=1) for n in range(5)))
    accounts = Accounts(store, now_ns=lambda: 3 * SECOND + 1)
    ledger = accounts.of_rollout("r1")
    # Its span, and that of a call under way, are those of the seconds 3 and 4.
    accounts.add(call(input_tokens=100), rollout_id="r1", run_id=None, started_ns=3 * SECOND)
    await asyncio.gather(accounts.complete(ledger), accounts.complete(ledger))
    await accounts.complete(ledger)
    assert (ledger.account.calls, ledger.account.tokens) == (3 + 1, 3 * 11 + 100)
    assert len(store.queries) == 3 + 1  # calls in pages of two, embeddings
    assert ledger.as_json()["complete"]


async def test_embeddings_are_read_back_with_the_calls():
    store = Spans(span_of(1, input_tokens=10), span_of(2, name="embeddings e5", input_tokens=5))
    accounts = Accounts(store, now_ns=lambda: NOW)
    ledger = accounts.of_rollout("r1")
    await accounts.complete(ledger)
    assert (ledger.account.calls, ledger.account.tokens) == (2, 15)


async def test_reading_back_that_failed_is_tried_again():
    store = Spans(span_of(1))
    accounts = Accounts(store, now_ns=lambda: SECOND)
    ledger = accounts.of_rollout("r1")
    store.failure = StoreUnavailableError("gone")
    with pytest.raises(StoreUnavailableError):
        await accounts.complete(ledger)
    assert not ledger.is_complete
    store.failure = None
    await accounts.complete(ledger)
    assert ledger.account.calls == 1


async def test_a_caller_who_leaves_does_not_stop_the_reading_for_others():
    store = Spans(span_of(1))
    store.gate.clear()
    accounts = Accounts(store, now_ns=lambda: SECOND)
    ledger = accounts.of_rollout("r1")
    leaving, staying = (asyncio.create_task(accounts.complete(ledger)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    store.gate.set()
    await staying
    assert leaving.cancelled()
    assert ledger.account.calls == 1


def test_memory_is_bounded_and_calls_under_way_are_never_forgotten():
    accounts = Accounts(Spans(), now_ns=lambda: 0, max_rollouts=2)
    busy = accounts.of_rollout("r0")
    busy.calls_under_way = 1
    idle = accounts.of_rollout("r1")
    for number in range(2, 50):
        accounts.of_rollout(f"r{number}")
    assert accounts.of_rollout("r0") is busy
    assert accounts.of_rollout("r1") is not idle
    assert accounts.calls_under_way == 1


def test_agents_beyond_a_limit_are_counted_together():
    accounts = Accounts(Spans(), now_ns=lambda: 0)
    for number in range(300):
        accounts.add(call(agent=f"agent-{number}"), rollout_id="r1", run_id=None, started_ns=NOW)
    agents = accounts.of_rollout("r1").agents
    assert len(agents) == 257
    assert agents["(others)"].calls == 44


async def test_one_rollout_or_run_is_told_completely_and_otherwise_all_runs():
    store = Spans(span_of(1, cost_usd=0.5))
    accounts = Accounts(store, now_ns=lambda: 2 * SECOND)
    accounts.add(call(), rollout_id="r1", run_id="demo", started_ns=NOW)
    told = await accounts_answer(accounts, {"rollout_id": "r1"})
    assert (told["rollout_id"], told["calls"], told["complete"]) == ("r1", 2, True)
    told = await accounts_answer(accounts, {"run_id": "demo"})
    assert (told["run_id"], told["cost_usd"]) == ("demo", 0.5)
    told = await accounts_answer(accounts, {})
    assert (told["since"], told["total"]["calls"], list(told["runs"])) == (2.0, 1, ["demo"])
