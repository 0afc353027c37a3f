"""How a pool waits, and what it says of the dead. Real processes: tests/integration/test_process_runners.py."""

from agl.runners.pool import pause_seconds


def test_pauses_double_up_to_a_limit_and_chance_takes_up_to_half() -> None:
    assert [pause_seconds(crashes, 1.0) for crashes in (1, 2, 3, 6, 7, 8, 1000)] == [
        *(0.5, 1.0, 2.0, 16.0),
        *(30.0, 30.0, 30.0),
    ]
    assert [pause_seconds(crashes, 0.0) for crashes in (1, 2)] == [0.25, 0.5]
