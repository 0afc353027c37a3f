"""A rollout stays with its server while that is well; new rollouts go where the fewest calls are."""

from __future__ import annotations

from collections import Counter

from agl.proxy.routing.choice import Seats, candidates

NAMES = ["http://a", "http://b", "http://c"]


def test_a_rollout_stays_where_it_began_whatever_the_load():
    seats = Seats()
    assert seats.choose("r1", [1, 0, 1], well={0, 1, 2}, names=NAMES) == 1
    assert seats.choose("r1", [0, 9, 0], well={0, 1, 2}, names=NAMES) == 1


def test_a_rollout_moves_away_from_a_sick_server_and_stays_there():
    seats = Seats()
    assert seats.choose("r1", [1, 0, 1], well={0, 1, 2}, names=NAMES) == 1
    moved = seats.choose("r1", [0, 0, 5], well={0, 2}, names=NAMES)
    assert moved == 0
    assert seats.choose("r1", [9, 0, 0], well={0, 1, 2}, names=NAMES) == 0


def test_of_equally_loaded_servers_every_proxy_chooses_the_same_and_rollouts_spread():
    ids = [f"r{number}" for number in range(3000)]
    here = [Seats().choose(rollout_id, [0, 0, 0], well={0, 1, 2}, names=NAMES) for rollout_id in ids]
    there = [Seats().choose(rollout_id, [0, 0, 0], well={0, 1, 2}, names=NAMES) for rollout_id in ids]
    assert here == there
    assert all(900 < count < 1100 for count in Counter(here).values())  # 1000 each; 5 sigma is 129


def test_a_server_that_leaves_moves_only_its_own_rollouts():
    ids = [f"r{number}" for number in range(300)]
    three = [Seats().choose(rollout_id, [0, 0, 0], well={0, 1, 2}, names=NAMES) for rollout_id in ids]
    two = [Seats().choose(rollout_id, [0, 0, 0], well={0, 1}, names=NAMES) for rollout_id in ids]
    assert all(before == after for before, after in zip(three, two, strict=True) if before != 2)


def test_the_memory_of_seats_is_bounded():
    seats = Seats(max_seats=2)
    for rollout_id in ("r1", "r2", "r3"):
        seats.choose(rollout_id, [0, 1, 1], well={0, 1, 2}, names=NAMES)
    assert seats.choose("r3", [9, 0, 9], well={0, 1, 2}, names=NAMES) == 0
    assert seats.choose("r1", [9, 0, 9], well={0, 1, 2}, names=NAMES) == 1


def test_a_call_of_nobody_takes_no_seat():
    seats = Seats()
    assert seats.choose("", [0, 1, 1], well={0, 1, 2}, names=NAMES) == 0
    assert seats.choose("", [1, 1, 0], well={0, 1, 2}, names=NAMES) == 2


def test_well_untried_servers_come_first_and_a_sick_one_is_better_than_none():
    def chosen(*, well, due, tried):
        return candidates(NAMES, tried=tried, is_well=well.__contains__, is_due=due.__contains__)

    assert chosen(well=["http://a", "http://b"], due=["http://c"], tried={0}) == {1}
    assert chosen(well=["http://a"], due=["http://c"], tried={0}) == {0}
    assert chosen(well=[], due=["http://b", "http://c"], tried={1}) == {2}
    assert chosen(well=[], due=[], tried={0}) == {1, 2}
    assert chosen(well=[], due=[], tried={0, 1, 2}) == {0, 1, 2}
