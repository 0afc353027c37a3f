"""Ctrl-C before a command's own loop heeds it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from agl.cli.interrupts import leave_on_interrupt, raised_interrupts


@pytest.fixture(autouse=True)
def handler_as_before() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_process_with_130_and_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    leave_on_interrupt(end=codes.append)
    os.kill(os.getpid(), signal.SIGINT)
    assert codes == [130]
    assert capfd.readouterr() == ("", "agl: interrupted\n")


def test_work_that_cleans_up_behind_itself_is_interrupted_by_an_exception() -> None:
    codes: list[int] = []
    leave_on_interrupt(end=codes.append)
    with pytest.raises(KeyboardInterrupt), raised_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
    assert codes == []
    os.kill(os.getpid(), signal.SIGINT)
    assert codes == [130]


def test_an_interrupt_that_the_process_was_started_to_ignore_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    codes: list[int] = []
    leave_on_interrupt(end=codes.append)
    with raised_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
    assert (codes, signal.getsignal(signal.SIGINT)) == ([], signal.SIG_IGN)
