"""What a serving process asks of its interpreter. In a process of its own, for it is the tests' interpreter else."""

from __future__ import annotations

import subprocess
import sys


def test_a_serving_process_looks_seldom_for_garbage_and_switches_threads_soon() -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import gc, sys; from agl.launch.interpreter import tune_for_serving; tune_for_serving();"
            "print(gc.get_freeze_count() > 0, gc.get_threshold()[0], round(sys.getswitchinterval(), 6))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["True", "50000", "0.0005"]
