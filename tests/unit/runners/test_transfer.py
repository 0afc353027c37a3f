"""What is sent to another process is found there by its place."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agl.agents.function import CallableAgent
from agl.agents.load import load_object
from agl.errors import ConfigError
from agl.runners.transfer import packed, unpacked

FILE = """
import neighbour

SEEN = []

def agent(task):
    return neighbour.FACTOR * task

class Grader:
    def __init__(self, factor):
        self.factor = factor
"""

ELSEWHERE = """
import sys
from agl.runners.transfer import unpacked
made = unpacked(sys.stdin.buffer.read())
print(made(7) if callable(made) else made.factor)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("FACTOR = 3\n")
    path = tmp_path / "recipe_file.py"
    path.write_text(FILE)
    return path


def elsewhere(data: bytes, folder: Path) -> str:
    """Unpack in another process, which stands in another folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=data, capture_output=True, check=True, cwd=folder, timeout=60
    )
    return done.stdout.decode().strip()


def test_a_function_of_a_file_is_found_by_another_process_with_its_neighbours(file: Path, tmp_path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert elsewhere(packed(load_object(f"{file}:agent")), other) == "21"


def test_an_object_travels_with_its_state_and_its_class_by_its_place(file: Path, tmp_path) -> None:
    kind = load_object(f"{file}:Grader")
    assert elsewhere(packed(kind(5)), tmp_path) == "5"


def test_what_has_a_name_of_its_own_comes_back_as_itself() -> None:
    assert unpacked(packed(json.dumps)) is json.dumps


def test_a_function_as_an_agent_travels(file: Path) -> None:
    agent = unpacked(packed(CallableAgent(load_object(f"{file}:agent"))))
    assert agent.name == "agent"


SCRIPT = """
import subprocess, sys
from agl.runners.transfer import packed

def agent(task):
    return task + 1

if __name__ == "__main__":
    data = packed(agent)
    program = "import sys; from agl.runners.transfer import unpacked; print(unpacked(sys.stdin.buffer.read())(1))"
    subprocess.run([sys.executable, "-c", program], input=data, check=True)
"""


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_function_of_the_started_script_travels(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"] if how == "file" else [sys.executable, "-m", "script"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_code_without_a_place_is_refused_by_name() -> None:
    def local() -> None: ...

    with pytest.raises(ConfigError, match=r"local in .* has no name .* runner=inline"):
        packed(local)
    with pytest.raises(ConfigError, match="<lambda>"):
        packed(lambda: None)


def test_a_value_that_cannot_travel_is_refused_with_what_to_do(tmp_path) -> None:
    with (
        (tmp_path / "open").open("w") as file,
        pytest.raises(ConfigError, match=r"cannot pickle.*runner=inline"),
    ):
        packed({"file": file})


def test_what_cannot_be_loaded_there_is_said(file: Path) -> None:
    data = packed(load_object(f"{file}:agent"))
    file.rename(file.with_name("gone.py"))
    for name in [name for name in sys.modules if name.endswith("_recipe_file")]:
        del sys.modules[name]
    with pytest.raises(ConfigError, match="there is no file"):
        unpacked(data)
