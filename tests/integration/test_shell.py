"""agl in a shell: colours, encodings, narrow and dumb terminals, readers that leave, completion in bash."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AGL = (sys.executable, "-m", "agl")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|10[0-7])(?:;\d+)*m")
COMMANDS = [["train", "--help"], ["--bogus"], ["ls"], ["eval", "--help"]]
BASH = """
eval "$(agl --show-completion bash)"
ask() { COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _agl_completion agl; echo "${COMPREPLY[*]}"; }
ask agl tra
ask agl train +recipe = ppo_
ask agl train algorithm = gr
ask agl train +recipe = apo_rooms algorithm.beam_w
ask agl train --resume 2026
"""


def on_terminal(folder: Path, *arguments: str, **variables: str) -> str:
    """What the command writes to a terminal."""
    leader, follower = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    with subprocess.Popen(
        [*AGL, *arguments], cwd=folder, stdin=follower, stdout=follower, stderr=follower, env=kept | variables
    ) as process:
        os.close(follower)
        written = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux says so that nobody writes any more
                break
            if not part:
                break
            written += part
        process.wait(timeout=60)
    os.close(leader)
    return written.decode(errors="replace")


def test_no_color_means_no_colours(tmp_path: Path) -> None:
    assert COLOUR.search(on_terminal(tmp_path, "train", "--help", TERM="xterm-256color"))
    for arguments in COMMANDS:
        text = on_terminal(tmp_path, *arguments, TERM="xterm-256color", NO_COLOR="1")
        assert text
        assert not COLOUR.search(text), text


def test_a_dumb_terminal_gets_nothing_to_obey(tmp_path: Path) -> None:
    for arguments in [["train", "--help"], ["--bogus"], ["ls"]]:
        text = on_terminal(tmp_path, *arguments, TERM="dumb")
        assert text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    "encoding",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["C", "ascii", "latin-1"],
)
def test_no_encoding_makes_a_command_fail(tmp_path: Path, encoding: dict[str, str]) -> None:
    task = '{"request": "\u4f1a\u8b70 caf\u00e9 \u2713", "answer": "Elm"}'
    for arguments, code in (
        (["run", "--help"], 0),
        (["train", "+recipe=\u00fcber"], 2),
        (["run", "+recipe=apo_rooms", "--task", task, "--processes", "0"], 2),
        (["run", "+recipe=apo_rooms", "--task", task], 0),
    ):
        done = subprocess.run(
            [*AGL, *arguments],
            cwd=tmp_path,
            capture_output=True,
            env={**os.environ, **encoding},
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        assert b"UnicodeEncodeError" not in done.stdout + done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*AGL, "train", "--help"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert said == b""


def test_bash_completes_recipes_options_settings_and_runs(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "runs" / "2026-12-01_one").mkdir(parents=True)
    (tmp_path / "runs" / "2026-12-01_one" / "settings.yaml").touch()
    command = tmp_path / "bin" / "agl"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom agl.__main__ import main\nmain()\n")
    command.chmod(0o755)
    done = subprocess.run(
        [bash, "--norc", "-c", BASH],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "train trace",
        "ppo_sql",
        "grpo",
        "algorithm.beam_width=",
        "2026-12-01_one",
    ], done.stderr
