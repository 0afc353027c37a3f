"""The architecture: imports in one direction, small files, light start, one home for every public name."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import agl

ROOT = Path(__file__).parents[2]


def output_of(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_imports_go_in_one_direction() -> None:
    code, text = output_of(
        sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"
    )
    assert code == 0, text


def test_files_functions_names_effects_and_tests_keep_the_rules() -> None:
    code, text = output_of(sys.executable, "scripts/check_architecture.py")
    assert code == 0, text


def test_every_public_name_is_listed_once_and_can_be_loaded() -> None:
    assert sorted(agl.__all__) == sorted(set(agl.__all__))
    assert set(agl.__all__) == {*agl._HOMES, "__version__"}
    for name, home in agl._HOMES.items():
        assert getattr(agl, name) is getattr(import_module(home), name), name
    assert dir(agl) == sorted(agl.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'agl' has no attribute 'Nothing'"):
        _ = agl.Nothing


def test_the_package_its_store_runners_and_proxy_are_light() -> None:
    heavy = ("torch", "transformers", "vllm", "verl", "ray", "litellm")
    code = (
        "import sys, agl, agl.store.sqlite, agl.runners, agl.proxy, agl.agents, agl.trainer, agl.config, agl.cli.train;"
        f"[getattr(agl, name) for name in agl.__all__]; print(*[m for m in {heavy!r} if m in sys.modules])"
    )
    assert output_of(sys.executable, "-c", code) == (0, "\n")
