"""The command as a process of its own: exit codes, one line of error, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

AGL = (sys.executable, "-m", "agl")
WAITING = """
import asyncio
from pathlib import Path

from agl.trainer import Trainer


class Waiting(Trainer):
    def __init__(self, *, run_dir: str, **parts: object) -> None:
        self.run_dir = Path(run_dir)

    def fit(self, *, resume=False, settings=None):
        async def wait():
            (self.run_dir / "begun").touch()
            await asyncio.sleep(3600)
        asyncio.run(wait())
"""
GROUPS = (
    "policy",
    "inference",
    "learner",
    "store",
    "runner",
    "proxy",
    "agent",
    "data",
    "adapter",
    "algorithm",
    "metrics",
)


def agl(folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*AGL, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["algorithm.group_sizee=8"], "did you mean algorithm.group_size?"),
        (["+recipe=ppo_sqll"], "did you mean ppo_sql?"),
        (["seed"], "not an override"),
        ([], "no value for "),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_two(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    code, out, err = agl(tmp_path, "train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("agl: ")
    assert err.count("\n") == 1
    assert reason in err
    assert list(tmp_path.iterdir()) == []


def test_settings_can_be_piped_into_a_file_and_read_again(tmp_path: Path) -> None:
    code, out, err = agl(tmp_path, "train", "+recipe=ppo_sql", "--cfg")
    assert (code, err) == (0, "")
    assert "name: ppo_sql" in out


def test_ctrl_c_ends_the_command_with_one_line_and_exit_code_130(tmp_path: Path) -> None:
    recipe = tmp_path / "mine" / "recipe" / "waiting.yaml"
    recipe.parent.mkdir(parents=True)
    code = tmp_path / "mine" / "waiting.py"
    code.write_text(WAITING)
    nulls = "\n".join(f"{group}: null" for group in GROUPS)
    recipe.write_text(f"# @package _global_\n_target_: {code}:Waiting\ntrusted: [{code.parent}]\n{nulls}\n")
    arguments = [*AGL, "train", "--config-dir", "mine", "+recipe=waiting", "--run-dir", "here"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "here" / "begun").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=5)
    assert (process.returncode, out) == (130, "")
    assert err == "agl: interrupted (go on with: agl train --resume here)\n"


@pytest.mark.parametrize(
    ("given", "code", "said"), [("3", 3, ""), ("None", 0, ""), ("'no luck'", 1, "no luck\n")]
)
def test_a_command_ends_with_its_exit_handlers_and_without_waiting_for_threads(
    given: str, code: int, said: str
) -> None:
    program = f"""
import atexit, threading
from agl.cli.app import leave
atexit.register(print, "bye")
threading.Thread(target=threading.Event().wait).start()
leave({given})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "bye\n", said)
