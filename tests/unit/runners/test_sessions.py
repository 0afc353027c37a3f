"""What a process has started is found by its session."""

import os
import select
import signal
import subprocess
import sys

from agl.runners.sessions import end_session, members

PROGRAM = """
import subprocess, sys, os
inner = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"],
    stdout=subprocess.PIPE, process_group=0)
inner.stdout.readline()
print(inner.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_leaves_behind_is_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
    assert process.returncode == -signal.SIGKILL
    descriptor = os.pidfd_open(orphan)
    assert members(process.pid) == [orphan]
    assert end_session(process.pid) == 1
    assert select.select([descriptor], [], [], 10)[0], "it still runs"
    os.close(descriptor)


def test_the_caller_itself_is_spared(tmp_path) -> None:
    for pid, session in ((os.getpid(), 7), (99, 8)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (strange) name) S 1 {session} {session} 0")
    (tmp_path / "self").mkdir()
    (tmp_path / "12").mkdir()  # it has ended
    assert members(7, table=tmp_path) == [os.getpid()]
    assert end_session(7, table=tmp_path) == 0
