"""Targets: only trusted code is built, and a name that is not there is met with the nearest one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.config.targets import Trust, target_named
from agl.data import FileTasks
from agl.errors import ConfigError

OURS = Trust(packages=frozenset(["agl"]), folders=())


def refusal(name: str, trust: Trust = OURS) -> str:
    with pytest.raises(ConfigError) as caught:
        target_named(name, "data._target_", trust)
    return str(caught.value)


def test_our_own_classes_are_found_in_both_spellings() -> None:
    assert target_named("agl.data.FileTasks", "data._target_", OURS) is FileTasks
    assert target_named("agl.data:FileTasks", "data._target_", OURS) is FileTasks


def test_other_packages_must_be_trusted() -> None:
    assert refusal("os.system") == (
        "data._target_ is os.system, which is not trusted; add os to `trusted` to allow it"
    )
    trust = Trust.of(["fractions"], built_in=Path("recipes"))
    assert target_named("fractions.Fraction", "data._target_", trust)(1, 2).denominator == 2


def test_code_reached_through_our_modules_is_not_ours() -> None:
    assert refusal("agl.data.hashlib.sha256").startswith("data._target_: there is no module agl.data.hashlib")
    assert refusal("agl.data.dataclass") == (
        "data._target_ is agl.data.dataclass, which is really from dataclasses; that is not trusted"
    )


def test_files_must_lie_in_a_trusted_folder(world: Path) -> None:
    name = f"{world}/classes.py:Group"
    assert refusal(name) == (
        f"data._target_ is {name}, whose code is not trusted; add {world} to `trusted` to allow it"
    )
    assert target_named(name, "x", Trust.of([str(world)], built_in=Path("recipes"))).__name__ == "Group"


def test_files_of_our_own_recipes_are_trusted(world: Path) -> None:
    assert target_named(f"{world}/classes.py:Group", "x", Trust.of([], built_in=world)).__name__ == "Group"


def test_a_misspelt_class_or_module_names_the_nearest(world: Path) -> None:
    assert refusal("agl.data.FileTaskss") == (
        "data._target_: agl.data has no FileTaskss; did you mean agl.data.FileTasks?"
    )
    assert refusal("agl.dataa.FileTasks") == (
        "data._target_: there is no module agl.dataa; did you mean agl.data?"
    )
    trust = Trust.of([str(world)], built_in=Path("recipes"))
    assert "did you mean 'Group'?" in refusal(f"{world}/classes.py:Groupp", trust)


def test_a_file_that_is_not_there_is_an_error(world: Path) -> None:
    assert refusal(f"{world}/nothing.py:X", Trust.of([str(world)], built_in=Path("recipes"))).startswith(
        "data._target_: there is no file"
    )


def test_what_cannot_be_called_is_refused(world: Path) -> None:
    name = f"{world}/classes.py:NUMBER"
    assert refusal(name, Trust.of([str(world)], built_in=Path("recipes"))) == (
        f"data._target_ is {name}, which is a int and not a class or a function"
    )


def test_a_name_without_a_module_is_refused() -> None:
    assert "agl" in refusal("agl")


def test_a_module_that_needs_what_is_not_installed_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_here.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    trust = Trust.of(["half_here"], built_in=Path("recipes"))
    assert refusal("half_here.X", trust) == (
        "data._target_: half_here.X needs not_there_at_all, which is not installed"
    )
