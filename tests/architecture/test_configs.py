"""The YAML groups and the Python signatures say the same thing; every recipe composes and passes the check."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from agl.agents.load import load_object
from agl.config import check, compose, search_folders

ROOT = Path(__file__).parents[2]
GROUPS = sorted(path for path in (ROOT / "configs").glob("*/*.yaml") if path.parent.name != "recipe")
RECIPES = sorted((ROOT / "configs" / "recipe").glob("*.yaml"))


def parameters_of(target: str) -> dict[str, inspect.Parameter]:
    """The parameters of a class by name; a dataclass's default factories are called."""
    if ":" in target:
        made: Any = load_object(target.replace("${recipe_dir:", f"{ROOT}/recipes/").replace("}", ""))
    else:
        module, _, name = target.rpartition(".")
        made = getattr(import_module(module), name)
    parameters = dict(inspect.signature(made).parameters)
    for field in dataclasses.fields(made) if dataclasses.is_dataclass(made) else ():
        if field.default_factory is not dataclasses.MISSING:
            parameters[field.name] = parameters[field.name].replace(default=field.default_factory())
    return parameters


def written(path: Path) -> dict[str, Any]:
    """The file's values as Hydra reads them (1e-4 is a number), references as text."""
    return OmegaConf.to_container(OmegaConf.load(path), resolve=False)  # type: ignore[return-value]


def same(value: Any, default: Any) -> bool:
    """YAML has no tuples, and an empty mapping or list there may stand for None."""
    if value in ({}, []) and default is None:
        return True
    plain = list(default) if isinstance(default, tuple) else default
    return value == plain and isinstance(value, bool) == isinstance(plain, bool)


def check_node(node: dict[str, Any], *, own_values: bool = False) -> None:
    """Compare a node, and those in it, with their signatures; a recipe chooses its ``own_values``."""
    parameters = parameters_of(node.pop("_target_"))
    assert list(node) == list(parameters)
    if own_values:
        return
    for name, value in node.items():
        default = parameters[name].default
        if "${" in str(value):
            continue
        if isinstance(value, dict) and "_target_" in value:
            check_node(value)
        elif default is inspect.Parameter.empty:
            assert value == "???", f"{name} has no default in Python"
        else:
            assert same(value, default), f"{name}: {value!r} in YAML, {default!r} in Python"


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_group_lists_every_setting_with_its_python_default(path: Path) -> None:
    text = path.read_text()
    check_node(written(path), own_values="${recipe_dir:" in text or text.startswith("# Preset:"))


@pytest.mark.parametrize("name", ["train", "store", "proxy"])
def test_a_root_lists_every_setting_with_its_python_default(name: str) -> None:
    root = written(ROOT / "configs" / f"{name}.yaml")
    groups = [name for choice in root.pop("defaults") if isinstance(choice, dict) for name in choice]
    parameters = parameters_of(root.pop("_target_"))
    assert root.pop("trusted") == []
    assert set(root) | set(groups) == set(parameters)
    own = {"name", "run_dir"} if name == "train" else set()
    for setting, value in root.items():
        if setting not in own and "${" not in str(value):
            assert same(value, parameters[setting].default), setting


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_composes_and_passes_the_check(path: Path) -> None:
    check(compose("train", [f"+recipe={path.stem}"], folders=search_folders()[:1]))


def test_every_file_is_yaml_that_people_can_read() -> None:
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
        assert "\t" not in path.read_text(), path
