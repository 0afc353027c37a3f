"""Admission on the store of this process: what a call passes, and what is counted of it."""

import pytest

from agl.proxy.admission import Admission, Caller, usage_of
from agl.proxy.budgets import Budgets
from agl.proxy.prices import Prices
from agl.proxy.record import Call, Ended, answered_span, failed_span
from agl.proxy.refusal import CallRefusedError
from agl.proxy.routes import Address
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest
from agl.types import attributes as key

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}
PRICES = Prices({"policy": {"input": 100.0, "output": 1000.0}})  # USD per million tokens


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


async def caller_in(store, **metadata):
    started = await store.start_rollout(RolloutRequest(task=1, run_id="demo", metadata=metadata))
    ids = {"rollout_id": started.rollout.rollout_id, "attempt_id": started.attempt.attempt_id}
    return Caller(**ids, run_id="demo", metadata=metadata)


class Proxy:
    """Puts calls through an admission as the proxy does, with a clock that moves a second a call."""

    def __init__(self, store, answer_of, *, started=0, **settings):
        self.store = store
        self.answer_of = answer_of
        self.seconds = started
        given = {"budgets": Budgets(), "prices": PRICES, "cache": None, **settings}
        self.admission = Admission(store, now_ns=lambda: self.seconds * 10**9, **given)
        self.asked = 0

    async def call(self, caller, chat=CHAT, *, fails_as=None, **asked):
        self.seconds += 1
        call = self.dispatched(caller, chat, **asked)
        passage = await self.admission.admit(caller, call, chat)
        ended = Ended(ended_ns=(self.seconds + 1) * 10**9)
        if fails_as is not None:
            span = failed_span(call, ended, error_type=fails_as, description="")
            answer = None
        else:
            if passage.recorded is None:
                self.asked += 1
                answer = self.answer_of(self.asked)
            else:
                answer = await passage.recorded.complete_chat(call.request)
            span = answered_span(call, answer, ended)
        settled = self.admission.settled(caller, passage, span, answer)
        await self.store.add_span(settled)
        return settled

    def dispatched(self, caller, chat, **asked):
        address = Address(
            rollout_id=caller.rollout_id, attempt_id=caller.attempt_id, agent=caller.agent, endpoint="chat"
        )
        return Call(
            address=address,
            request={"temperature": 1.0, **chat, **asked},
            span_id=f"{self.seconds:016x}",
            traceparent=None,
            started_ns=self.seconds * 10**9,
            policy_version=None,
        )


async def test_a_call_is_recorded_with_its_cost_and_counted(store, answer_of):
    proxy, caller = Proxy(store, answer_of), await caller_in(store)
    span = await proxy.call(caller)
    assert span.attributes[key.COST_USD] == pytest.approx((3 * 100 + 2 * 1000) / 1e6)  # 3 tokens in, 2 out
    account = proxy.admission.accounts.of_run("demo").account
    assert (account.calls, account.tokens, account.cost_usd) == (1, 5, span.attributes[key.COST_USD])
    assert proxy.admission.accounts.calls_under_way == 0


async def test_a_call_without_a_price_is_recorded_without_a_cost(store, answer_of):
    proxy, caller = Proxy(store, answer_of, prices=Prices()), await caller_in(store)
    span = await proxy.call(caller)
    assert key.COST_USD not in span.attributes
    assert proxy.admission.accounts.of_run("demo").account.calls_without_price == 1


async def test_the_model_that_answered_has_a_price_where_the_one_that_was_asked_has_none(store, answer_of):
    proxy, caller = Proxy(store, answer_of), await caller_in(store)  # answers name the model policy
    span = await proxy.call(caller, {**CHAT, "model": "alias"})
    assert span.attributes[key.COST_USD] > 0


async def test_what_was_cut_off_is_counted_by_its_exact_ids(store, answer_of):
    cut = answer_of(1)
    del cut["usage"]
    assert usage_of(cut) == {"prompt_tokens": 3, "completion_tokens": 2}
    del cut["prompt_token_ids"]
    assert usage_of(cut) is None
    proxy, caller = Proxy(store, lambda number: {**answer_of(number), "usage": None}), await caller_in(store)
    span = await proxy.call(caller)
    assert (span.attributes[key.INPUT_TOKENS], span.attributes[key.OUTPUT_TOKENS]) == (3, 2)
    assert span.attributes[key.COST_USD] > 0


async def test_budgets_survive_a_restart_of_the_proxy(store, answer_of):
    caller, other = await caller_in(store), await caller_in(store)
    await Proxy(store, answer_of).call(caller)
    budgets = Budgets(max_calls_per_rollout=2, max_calls_per_run=3)
    restarted = Proxy(store, answer_of, started=100, budgets=budgets)
    await restarted.call(caller)
    with pytest.raises(CallRefusedError, match=f"max_calls of rollout {caller.rollout_id}.*limit is 2"):
        await restarted.call(caller)
    await restarted.call(other)
    with pytest.raises(CallRefusedError, match="max_calls of run demo is used up: the limit is 3"):
        await restarted.call(other)


async def test_a_rollouts_own_budget_is_kept(store, answer_of):
    proxy, caller = Proxy(store, answer_of), await caller_in(store, budget={"max_calls": 1})
    await proxy.call(caller)
    with pytest.raises(CallRefusedError, match="the limit is 1"):
        await proxy.call(caller)


async def test_a_passage_that_is_closed_gives_back_what_was_held(store, answer_of):
    proxy, caller = Proxy(store, answer_of), await caller_in(store, budget={"max_calls": 1})
    passage = await proxy.admission.admit(caller, proxy.dispatched(caller, CHAT), CHAT)
    assert proxy.admission.accounts.calls_under_way == 1
    passage.close()
    await proxy.call(caller)


async def test_an_equal_request_is_answered_out_of_the_store_for_nothing(store, answer_of):
    caller = await caller_in(store)
    first = await Proxy(store, answer_of, cache="repeatable").call(caller, seed=5)
    later = Proxy(store, answer_of, started=100, cache="repeatable", budgets=Budgets(max_calls_per_rollout=2))
    hit = await later.call(await caller_in(store), seed=5)
    assert later.asked == 0
    assert hit.attributes[key.CACHE] == "hit"
    assert hit.attributes[key.COST_USD] == 0.0
    assert hit.attributes[key.RESPONSE_TOKEN_IDS] == first.attributes[key.RESPONSE_TOKEN_IDS]
    assert key.CACHE_KEY not in hit.attributes
    other = await later.call(caller, seed=6)
    assert key.CACHE not in other.attributes
    account = later.admission.accounts.of_run("demo").account
    assert (account.calls, account.replayed_calls) == (1, 1)


async def test_a_failed_call_is_no_answer_for_later_ones(store, answer_of):
    proxy, caller = Proxy(store, answer_of, cache="all"), await caller_in(store)
    await proxy.call(caller, fails_as="503")
    await proxy.call(caller)
    assert proxy.asked == 1


async def test_a_replaying_rollout_is_answered_from_the_record_for_nothing(store, answer_of):
    first = Proxy(store, answer_of)
    recorded = await caller_in(store)
    spans = [await first.call(recorded), await first.call(recorded, {**CHAT, "seed": 1})]
    replaying = await caller_in(store, replay_of=recorded.rollout_id, replay_from_call=1)
    again = Proxy(store, answer_of, started=100)
    hit, fresh = await again.call(replaying), await again.call(replaying, {**CHAT, "seed": 1})
    assert hit.attributes[key.REPLAY] == "hit"
    assert hit.attributes[key.COST_USD] == 0.0
    assert hit.attributes[key.RESPONSE_TOKEN_IDS] == spans[0].attributes[key.RESPONSE_TOKEN_IDS]
    assert key.REPLAY not in fresh.attributes
    assert again.asked == 1


async def test_a_missed_replay_says_so_and_costs(store, answer_of):
    first, recorded = Proxy(store, answer_of), await caller_in(store)
    await first.call(recorded)
    again = Proxy(store, answer_of, started=100)
    missed = await again.call(await caller_in(store, replay_of=recorded.rollout_id), {**CHAT, "seed": 1})
    assert missed.attributes[key.REPLAY] == "miss"
    assert missed.attributes[key.COST_USD] > 0


async def test_a_client_that_repeats_a_failed_call_keeps_its_place_in_the_replay(store, answer_of):
    first, recorded = Proxy(store, answer_of), await caller_in(store)
    await first.call(recorded)
    await first.call(recorded, {**CHAT, "seed": 2})
    replaying = await caller_in(store, replay_of=recorded.rollout_id)
    again = Proxy(store, answer_of, started=100)
    await again.call(replaying, {**CHAT, "seed": 1}, fails_as="503")
    await again.call(replaying, {**CHAT, "seed": 1})
    hit = await again.call(replaying, {**CHAT, "seed": 2})
    assert hit.attributes[key.REPLAY] == "hit"
