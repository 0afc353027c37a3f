import pytest

from agl.proxy.refusal import CallRefusedError
from agl.proxy.replays import ReplayRequest, Replays, recording_of, replay_from_metadata, request_hash
from agl.types import Page, Span, SpanStatus
from agl.types import attributes as key

ALL = ReplayRequest(replay_of="r0")
ME = ("r1", "a1", None)


def span_of(asked, start, end=None, *, agent=None, error=None, service="agl.proxy", **said):
    attributes = {key.REQUEST_HASH: asked, **said}
    attributes |= {} if agent is None else {key.AGENT: agent}
    attributes |= {} if error is None else {key.ERROR_TYPE: error}
    return Span(
        span_id=f"{start:016x}",
        trace_id="1" * 32,
        name="chat m",
        status=SpanStatus(code="ok" if error is None else "error"),
        attributes=attributes,
        resource={"service.name": service},
        start_time_ns=start,
        end_time_ns=start + 1 if end is None else end,
        rollout_id="r0",
        attempt_id="a0",
    )


class Spans:
    """A store's spans, two a page."""

    def __init__(self, *spans):
        self.spans = spans
        self.queries = []

    async def query_spans(self, query):
        self.queries.append(query)
        start = int(query.cursor or 0)
        found = [span for span in self.spans if span.rollout_id == query.rollout_id]
        following = str(start + 2) if start + 2 < len(found) else None
        return Page[Span](items=found[start : start + 2], next_cursor=following)


async def walk(replays, hashes, asked=ALL, caller=ME):
    """(mark, start of the recorded span) of one call after the other."""
    found = [await replays.find(asked, caller, asked_hash) for asked_hash in hashes]
    return [(one.mark, one.span and one.span.start_time_ns) for one in found]


def test_equal_requests_have_one_hash_whatever_their_order_and_delivery():
    hello = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": None}
    same = {
        "messages": [{"content": "hi", "role": "user"}],
        "model": "m",
        "stream_options": {"include_usage": True},
    }
    assert request_hash(hello) == request_hash(same)
    assert len(request_hash(hello)) == 32
    for other in ({**hello, "seed": 1}, {**hello, "temperature": 0.0}, {**hello, "model": "k"}):
        assert request_hash(other) != request_hash(hello)


def test_a_rollout_says_in_its_metadata_what_it_replays():
    assert replay_from_metadata({"seed": 5}) is None
    assert replay_from_metadata({"replay_of": "r0", "replay_from_call": 3}) == ReplayRequest(
        replay_of="r0", replay_from_call=3
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {"replay_of": 5},
        {"replay_of": ""},
        {"replay_strict": True},
        {"replay_of": "r0", "replay_from_call": -1},
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(metadata):
    with pytest.raises(CallRefusedError, match="metadata: replay_") as caught:
        replay_from_metadata(metadata)
    assert caught.value.status == 400


async def test_the_same_request_at_the_same_position_is_answered_from_the_record():
    replays = Replays(Spans(span_of("a", 1), span_of("b", 3), span_of("a", 5)))
    assert await walk(replays, "aba") == [("hit", 1), ("hit", 3), ("hit", 5)]


async def test_the_record_is_in_the_order_in_which_calls_began_and_only_of_the_proxys_own_spans():
    replays = Replays(Spans(span_of("b", 3), span_of("x", 2, service="my-agent"), span_of("a", 1)))
    assert await walk(replays, "ab") == [("hit", 1), ("hit", 3)]


async def test_a_request_that_differs_is_a_miss_and_the_next_position_is_looked_up_again():
    replays = Replays(Spans(span_of("a", 1), span_of("b", 3), span_of("c", 5)))
    assert await walk(replays, "axc") == [("hit", 1), ("miss", None), ("hit", 5)]


async def test_a_call_beyond_the_record_is_a_miss():
    assert await walk(Replays(Spans(span_of("a", 1))), "aa") == [("hit", 1), ("miss", None)]


async def test_only_the_first_calls_are_replayed_where_the_rollout_says_so():
    spans = Spans(span_of("a", 1, agent="x"), span_of("b", 3, agent="y"), span_of("c", 5, agent="x"))
    asked = ReplayRequest(replay_of="r0", replay_from_call=2)
    replays = Replays(spans)
    assert await walk(replays, "acd", asked, ("r1", "a1", "x")) == [("hit", 1), (None, None), (None, None)]
    assert await walk(replays, "b", asked, ("r1", "a1", "y")) == [("hit", 3)]
    none = ReplayRequest(replay_of="r0", replay_from_call=0)
    assert await walk(replays, "a", none, ("r2", "a1", "x")) == [(None, None)]


async def test_agents_and_attempts_have_positions_of_their_own():
    replays = Replays(
        Spans(span_of("a", 1, agent="x"), span_of("a", 3, agent="y"), span_of("b", 5, agent="x"))
    )
    assert await walk(replays, "a", caller=("r1", "a1", "y")) == [("hit", 3)]
    assert await walk(replays, "ab", caller=("r1", "a1", "x")) == [("hit", 1), ("hit", 5)]
    assert await walk(replays, "ab", caller=("r1", "a2", "x")) == [("hit", 1), ("hit", 5)]


async def test_calls_that_ran_side_by_side_may_come_in_another_order():
    replays = Replays(Spans(span_of("a", 1, 10), span_of("b", 2, 10), span_of("a", 3, 10), span_of("c", 11)))
    assert await walk(replays, "baac") == [("hit", 2), ("hit", 1), ("hit", 3), ("hit", 11)]
    assert await walk(Replays(Spans(span_of("a", 1), span_of("b", 3))), "ba") == [
        ("miss", None),
        ("miss", None),
    ]


async def test_a_failed_call_that_its_client_repeated_has_one_position():
    spans = [span_of("a", 1, error="503"), span_of("a", 3), span_of("b", 5)]
    assert [call.number for call in recording_of(spans)[None]] == [1, 2]
    assert await walk(Replays(Spans(*spans)), "ab") == [("hit", 3), ("hit", 5)]


async def test_a_repeat_of_a_call_that_failed_now_stays_at_its_position():
    replays = Replays(Spans(span_of("a", 1), span_of("b", 3), span_of("c", 5)))
    assert await walk(replays, "ax") == [("hit", 1), ("miss", None)]
    replays.failed(ME, "x")
    assert await walk(replays, "xc") == [("miss", None), ("hit", 5)]


async def test_a_recorded_failure_is_asked_anew():
    replays = Replays(Spans(span_of("a", 1, error="400"), span_of("b", 3)))
    assert await walk(replays, "ab") == [("miss", None), ("hit", 3)]


async def test_calls_that_a_budget_stopped_are_not_part_of_the_record():
    replays = Replays(Spans(span_of("a", 1), span_of("x", 2, error="budget_exceeded"), span_of("b", 3)))
    assert await walk(replays, "ab") == [("hit", 1), ("hit", 3)]


async def test_a_strict_replay_refuses_what_differs_and_says_where():
    strict = ReplayRequest(replay_of="r0", replay_strict=True)
    replays = Replays(Spans(span_of("a", 1), span_of("b", 3)))
    assert await walk(replays, "a", strict) == [("hit", 1)]
    with pytest.raises(CallRefusedError, match="differs from call 2 of the record") as caught:
        await replays.find(strict, ME, "x")
    assert (caught.value.status, caught.value.code, caught.value.retry) == (409, "replay_differs", False)
    with pytest.raises(CallRefusedError, match="the record has 2 calls"):
        await replays.find(strict, ME, "c")


async def test_a_rollout_without_recorded_calls_cannot_be_replayed():
    with pytest.raises(CallRefusedError, match="no recorded calls of a rollout r0") as caught:
        await Replays(Spans()).find(ALL, ME, "a")
    assert caught.value.status == 404


async def test_a_recording_is_read_once_and_forgotten_when_others_need_the_room():
    other = span_of("a", 1).changed(rollout_id="r9")
    store = Spans(span_of("a", 1), span_of("b", 3), span_of("c", 5), other)
    replays = Replays(store, max_bytes=3)
    await walk(replays, "abc")
    assert len(store.queries) == 2  # pages of two
    assert all(query.attempt_id == "latest" for query in store.queries)
    await walk(replays, "a", ReplayRequest(replay_of="r9"), ("r2", "a1", None))
    await walk(replays, "a", caller=("r3", "a1", None))
    assert len(store.queries) == 5
