"""Waits that headers ask for."""

from __future__ import annotations

import pytest

from agl.proxy.upstreams.waits import retry_after_seconds, seconds_of_client

NOON = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:20 GMT"}, 20.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:59:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_a_server_says_how_long_it_wants_to_be_left_alone(headers, seconds):
    assert retry_after_seconds(headers, now=NOON) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 600.0),
        ({b"x-stainless-read-timeout": b"30"}, 30.0),
        ({b"x-stainless-timeout": b"45.5"}, 45.5),
        ({b"x-stainless-timeout": b"9000"}, 600.0),
        ({b"x-stainless-timeout": b"0"}, 600.0),
        ({b"x-stainless-timeout": b"NOT_GIVEN"}, 600.0),
    ],
)
def test_a_client_says_how_long_it_waits(headers, seconds):
    assert seconds_of_client(headers, limit=600.0) == seconds
