"""Every process of a program is found and ended."""

import secrets
import signal
import subprocess
import sys
import time

import pytest

from agl.agents import process_tree
from agl.agents.process_tree import kill_tree, members, signal_tree


@pytest.fixture
def mark() -> str:
    return f"AGL_TEST_MARK={secrets.token_hex(8)}"


def started(mark: str, script: str) -> subprocess.Popen[str]:
    """A program in a session of its own, which has said that all it starts has started."""
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        ["bash", "-c", f"{script}\necho ready\nexec sleep 1000"],
        env={"PATH": "/usr/bin:/bin", name: value},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_children_those_of_other_sessions_and_those_without_the_mark_are_members(mark: str) -> None:
    with started(
        mark,
        "sleep 1000 >&- & (setsid sleep 1000 >&- &)\nenv -i sleep 1000 >&- &\nenv -i setsid sleep 1000 >&- &",
    ) as process:
        found = members(mark, process.pid)
        assert len(found) == 5
        assert process.pid in found
        assert members(mark) == found
        assert members("AGL_TEST_MARK=another") == set()
        assert kill_tree(mark, process.pid) == set()
        assert process.wait() == -signal.SIGKILL
        assert members(mark, process.pid) == set()


def test_a_signal_reaches_all_of_them(mark: str) -> None:
    with started(mark, "(setsid sleep 1000 >&- &)\nsleep 1000 >&- &") as process:
        assert len(members(mark, process.pid)) == 3
        signal_tree(signal.SIGTERM, mark, process.pid)
        assert process.wait() == -signal.SIGTERM
        deadline = time.monotonic() + 10
        while members(mark) and time.monotonic() < deadline:  # a signal takes a moment to end a process
            pass
        assert members(mark) == set()


def test_the_guard_ends_what_has_its_mark_when_its_input_ends(mark: str) -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-I", "-S", process_tree.__file__, mark], stdin=subprocess.PIPE
        ) as guard,
        started(mark, "(setsid sleep 1000 >&- &)") as process,
    ):
        assert guard.stdin is not None
        guard.stdin.close()
        assert guard.wait(10) == 0
        assert process.wait() == -signal.SIGKILL
        assert members(mark) == set()
