import asyncio

import pytest

from agl.proxy.refusal import CallRefusedError
from agl.proxy.repeats import Outcome, RecentCalls, identity_of
from agl.proxy.routes import Address

ADDRESS = Address(rollout_id="r1", attempt_id="a1", agent=None, endpoint="chat")
OTHER_ATTEMPT = Address(rollout_id="r1", attempt_id="a2", agent=None, endpoint="chat")


class Performer:
    """Performs calls; the n-th answers ``n`` in a body of the given size."""

    def __init__(self, status=200, size=1):
        self.status, self.size, self.count = status, size, 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, call):
        self.count += 1
        number = self.count
        await self.gate.wait()
        return Outcome(status=self.status, body=b"x" * self.size, span_id=str(number))


def request(body=b"hello", retry=0, key=None, address=ADDRESS):
    headers = {b"x-stainless-retry-count": str(retry).encode()}
    if key:
        headers[b"idempotency-key"] = key
    return identity_of(address, headers, body)


async def answer(calls, identity, performer):
    return (await calls.claim(identity, performer).outcome).span_id


@pytest.mark.parametrize("header", [b"x", b"-1", b"", b"99999"])
def test_a_retry_count_that_is_none_marks_nothing(header):
    assert identity_of(ADDRESS, {b"x-stainless-retry-count": header}, b"").retry_count == 0


async def test_equal_calls_without_a_mark_stay_two():
    calls, performer = RecentCalls(), Performer()
    assert [await answer(calls, request(), performer) for _ in range(2)] == ["1", "2"]


async def test_each_retry_of_a_call_gets_its_answer():
    calls, performer = RecentCalls(), Performer()
    assert [await answer(calls, request(retry=retry), performer) for retry in (0, 1, 2)] == ["1", "1", "1"]


async def test_retries_of_equal_calls_side_by_side_get_an_answer_each():
    calls, performer = RecentCalls(), Performer()
    firsts = [await answer(calls, request(), performer) for _ in range(3)]
    repeats = [await answer(calls, request(retry=1), performer) for _ in range(3)]
    assert sorted(repeats) == sorted(firsts)
    assert performer.count == 3


async def test_the_newest_of_equal_calls_is_the_one_repeated():
    calls, performer = RecentCalls(), Performer()
    await answer(calls, request(), performer)
    newest = await answer(calls, request(), performer)
    assert await answer(calls, request(retry=1), performer) == newest


@pytest.mark.parametrize("other", [request(retry=1, body=b"bye"), request(retry=1, address=OTHER_ATTEMPT)])
async def test_another_body_or_attempt_is_another_call(other):
    calls, performer = RecentCalls(), Performer()
    await answer(calls, request(), performer)
    assert await answer(calls, other, performer) == "2"


async def test_a_retry_of_a_failed_call_is_new_and_does_not_take_an_older_calls_answer():
    calls, works, fails = RecentCalls(), Performer(), Performer(status=503)
    await answer(calls, request(), works)
    await answer(calls, request(), fails)
    assert await answer(calls, request(retry=1), works) == "2"


async def test_a_failed_call_is_repeated_once_and_leaves_the_answered_one_to_the_other_repeat():
    calls, works, fails = RecentCalls(), Performer(), Performer(status=503)
    await answer(calls, request(), works)
    await answer(calls, request(), fails)
    repeats = [await answer(calls, request(retry=1), works) for _ in range(2)]
    assert sorted(repeats) == ["1", "2"]


async def test_an_idempotency_key_makes_a_call_one():
    calls, performer = RecentCalls(), Performer()
    assert [await answer(calls, request(key=b"k1"), performer) for _ in range(2)] == ["1", "1"]
    assert await answer(calls, request(key=b"k2"), performer) == "2"


async def test_an_idempotency_key_with_another_body_is_refused():
    calls, performer = RecentCalls(), Performer()
    await answer(calls, request(key=b"k1"), performer)
    with pytest.raises(CallRefusedError) as caught:
        calls.claim(request(key=b"k1", body=b"bye"), performer)
    assert caught.value.status == 400


async def test_the_last_one_to_leave_cancels_the_call():
    calls, performer = RecentCalls(), Performer()
    performer.gate.clear()
    call = calls.claim(request(), performer)
    repeat = calls.claim(request(retry=1), performer)
    assert repeat is call
    leaving, staying = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
    waits = [asyncio.create_task(call.wait(leaving)), asyncio.create_task(call.wait(staying))]
    await asyncio.sleep(0)
    leaving.set_result(None)
    assert await waits[0] is False
    assert call.outcome.cancelling() == 0
    staying.set_result(None)
    assert await waits[1] is False
    assert call.outcome.cancelling() == 1
    assert calls.claim(request(retry=2), performer) is not call


async def test_a_repeat_does_not_join_a_call_that_is_being_given_up():
    calls, recording = RecentCalls(), asyncio.Event()

    async def slow_to_end(call):
        try:
            await asyncio.Event().wait()
        finally:
            await recording.wait()
        raise AssertionError("unreachable")

    call = calls.claim(request(), slow_to_end)
    await asyncio.sleep(0)
    left = asyncio.get_running_loop().create_future()
    left.set_result(None)
    await call.wait(left)
    await asyncio.sleep(0)
    assert not call.outcome.done()
    assert await answer(calls, request(retry=1), Performer()) == "1"
    recording.set()
    with pytest.raises(asyncio.CancelledError):
        await call.outcome


async def test_a_call_whose_answer_is_there_is_not_cancelled():
    calls, performer = RecentCalls(), Performer()
    performer.gate.clear()
    call = calls.claim(request(), performer)
    call.sampled = True
    left = asyncio.get_running_loop().create_future()
    left.set_result(None)
    assert await call.wait(left) is False
    performer.gate.set()
    assert (await call.outcome).status == 200


async def test_the_oldest_answers_are_forgotten_beyond_the_number_of_calls():
    calls, performer = RecentCalls(max_calls=2), Performer()
    for body in (b"1", b"2", b"3"):
        await answer(calls, request(body=body), performer)
    assert await answer(calls, request(body=b"3", retry=1), performer) == "3"
    assert await answer(calls, request(body=b"1", retry=1), performer) == "4"


async def test_the_oldest_answers_are_forgotten_beyond_the_number_of_bytes():
    calls, performer = RecentCalls(max_bytes=100), Performer(size=60)
    for body in (b"1", b"2"):
        await answer(calls, request(body=body), performer)
    assert await answer(calls, request(body=b"2", retry=1), performer) == "2"
    assert await answer(calls, request(body=b"1", retry=1), performer) == "3"


async def test_calls_in_flight_are_never_forgotten():
    calls, performer = RecentCalls(max_calls=1), Performer()
    performer.gate.clear()
    flights = [calls.claim(request(body=bytes([number])), performer) for number in range(5)]
    assert len(calls.in_flight()) == 5
    performer.gate.set()
    await asyncio.gather(*(call.outcome for call in flights))
    assert calls.in_flight() == []
