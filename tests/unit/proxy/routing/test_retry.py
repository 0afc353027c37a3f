"""Pauses double, are spread by chance, and are never shorter than the server asks for."""

from __future__ import annotations

from agl.proxy.routing.retry import pause_seconds


def test_pauses_double_up_to_eight_seconds():
    longest = [pause_seconds(tries, rng=lambda: 1.0, asked=None) for tries in range(1, 8)]
    assert longest == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_chance_shortens_a_pause_by_up_to_a_half():
    assert pause_seconds(3, rng=lambda: 0.0, asked=None) == 1.0
    assert pause_seconds(3, rng=lambda: 0.5, asked=None) == 1.5


def test_the_servers_wish_counts_where_it_is_longer():
    assert pause_seconds(1, rng=lambda: 1.0, asked=30.0) == 30.0
    assert pause_seconds(5, rng=lambda: 1.0, asked=0.1) == 8.0


def test_a_thousand_tries_overflow_nothing():
    assert pause_seconds(100_000, rng=lambda: 1.0, asked=None) == 8.0
