"""One call's way: other replicas at once, then pauses, then the next endpoint, never beyond the client's deadline."""

from __future__ import annotations

import pytest

from agl.errors import InferenceError
from agl.proxy.routing.tries import Tries
from agl.proxy.upstreams.base import UpstreamError


def way(route, clock, *, max_retries=2, deadline=None, error):
    """The (target, server, pause before) of every try until the call is given up."""
    tries = Tries(
        route, rollout_id="r", max_retries=max_retries, deadline=deadline, clock=clock, rng=lambda: 1.0
    )
    steps, pause = [], 0.0
    while True:
        target, replica = tries.next()
        steps.append((target.name, replica.name, pause))
        try:
            pause = tries.pause_after(error())
        except InferenceError:
            return steps
        clock.now += pause


def test_a_single_server_is_tried_again_after_pauses_that_double(new_server, new_target, clock, failure):
    steps = way([new_target("t", new_server("a"))], clock, error=failure)
    assert steps == [("t", "a", 0.0), ("t", "a", 0.5), ("t", "a", 1.0)]


def test_other_replicas_are_tried_at_once(new_server, new_target, clock, failure):
    steps = way([new_target("t", new_server("a"), new_server("b"))], clock, error=failure)
    assert {name for _, name, _ in steps[:2]} == {"a", "b"}
    assert [pause for _, _, pause in steps] == [0.0, 0.0, 1.0]


def test_the_next_endpoint_comes_after_the_retries_and_gets_its_own(new_server, new_target, clock, failure):
    route = [new_target("first", new_server("a")), new_target("second", new_server("b"))]
    steps = way(route, clock, max_retries=1, error=failure)
    assert steps == [("first", "a", 0.0), ("first", "a", 0.5), ("second", "b", 0.0), ("second", "b", 0.5)]


@pytest.mark.parametrize(
    "error", [lambda: InferenceError("bad", status=500), lambda: UpstreamError("bad", status=400)]
)
def test_what_cannot_succeed_elsewhere_is_not_tried_again(new_server, new_target, clock, error):
    route = [new_target("first", new_server("a")), new_target("second", new_server("b"))]
    assert way(route, clock, error=error) == [("first", "a", 0.0)]


def test_a_pause_beyond_the_deadline_goes_to_the_fallback_or_gives_up(new_server, new_target, clock, failure):
    first, second = new_target("first", new_server("a")), new_target("second", new_server("b"))
    limited = {"deadline": clock.now + 10.0, "error": lambda: failure(status=429, retry_after=30.0)}
    assert way([first, second], clock, **limited) == [("first", "a", 0.0), ("second", "b", 0.0)]
    assert way([first], clock, **limited) == [("first", "a", 0.0)]


def test_the_servers_wish_is_the_pause(new_server, new_target, clock, failure):
    steps = way(
        [new_target("t", new_server("a"))],
        clock,
        max_retries=1,
        error=lambda: failure(status=429, retry_after=3.0),
    )
    assert steps == [("t", "a", 0.0), ("t", "a", 3.0)]


def test_after_the_deadline_nothing_is_tried(new_server, new_target, clock, failure):
    route = [new_target("t", new_server("a"), new_server("b"))]
    assert len(way(route, clock, deadline=clock.now, error=failure)) == 1


def test_an_endpoint_whose_servers_are_all_unwell_is_passed_by(new_server, new_target, clock, failure):
    first, second = new_target("first", new_server("a")), new_target("second", new_server("b"))
    for _ in range(3):
        first.replicas[0].note(failure(), now=clock.now)
    assert way([first, second], clock, max_retries=0, error=failure) == [("second", "b", 0.0)]


def test_the_last_endpoint_is_tried_also_when_it_is_unwell(new_server, new_target, clock, failure):
    only = new_target("only", new_server("a"))
    for _ in range(3):
        only.replicas[0].note(failure(), now=clock.now)
    assert way([only], clock, max_retries=0, error=failure) == [("only", "a", 0.0)]


def test_a_call_speaks_against_a_server_once(new_server, new_target, clock):
    route = [new_target("t", new_server("a"), new_server("b"))]
    tries = Tries(route, rollout_id="r", max_retries=1, deadline=None, clock=clock, rng=lambda: 1.0)
    one, other = route[0].replicas
    assert [tries.blames(replica) for replica in (one, one, other, one)] == [True, False, True, False]
