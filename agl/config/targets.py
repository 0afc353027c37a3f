"""Targets: find the class or function that a ``_target_`` names, where it may be trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from agl.agents.load import load_object
from agl.config.explain import nearest
from agl.errors import ConfigError, MissingExtraError, extra_with

TARGET = "_target_"
OURS = "agl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose objects settings may build: agl's own, and the packages and folders that the root key ``trusted`` names."""

    packages: frozenset[str]
    folders: tuple[Path, ...]

    @staticmethod
    def of(named: Sequence[str], *, built_in: Path) -> Trust:
        """Return the trust in agl, its recipes and what is named: a folder where there is one, else a package."""
        folders = [Path(name).expanduser() for name in named if "/" in name or Path(name).is_dir()]
        packages = [name for name in named if "/" not in name]
        return Trust(
            packages=frozenset([OURS, *packages]),
            folders=tuple(folder.resolve() for folder in (built_in, *folders)),
        )

    def covers_file(self, path: Path) -> bool:
        """Tell whether the file lies in a trusted folder."""
        return any(path.resolve().is_relative_to(folder) for folder in self.folders)

    def covers_package(self, name: str) -> bool:
        """Tell whether a dotted name belongs to a trusted package."""
        return any(name == package or name.startswith(f"{package}.") for package in self.packages)


def target_named(name: str, key: str, trust: Trust) -> Callable[..., Any]:
    """Return what ``pkg.mod.Name``, ``pkg.mod:Name`` or ``file.py:Name`` names.

    Raises:
        ConfigError: not trusted, not found or not callable.
        MissingExtraError: its module needs an extra that is not installed.
    """
    place, colon, attribute = name.rpartition(":")
    if colon and place.endswith(".py"):
        path = Path(place).expanduser()
        if not trust.covers_file(path):
            raise ConfigError(
                f"{key} is {name}, whose code is not trusted; add {path.parent} to `trusted` to allow it"
            )
        found = _loaded(name, key)
    else:
        dotted = f"{place}.{attribute}" if colon else name
        if not trust.covers_package(dotted):
            package = dotted.partition(".")[0]
            raise ConfigError(
                f"{key} is {name}, which is not trusted; add {package} to `trusted` to allow it"
            )
        found = _loaded(name, key) if colon else _attribute(dotted, key)
        home = getattr(found, "__module__", None) or ""
        if not trust.covers_package(home):
            raise ConfigError(f"{key} is {name}, which is really from {home}; that is not trusted")
    if not callable(found):
        raise ConfigError(f"{key} is {name}, which is a {type(found).__name__} and not a class or a function")
    return found


def _loaded(name: str, key: str) -> Any:
    try:
        return load_object(name)
    except MissingExtraError:
        raise
    except (ConfigError, ImportError, OSError) as error:
        raise ConfigError(f"{key}: {error}") from error


def _attribute(dotted: str, key: str) -> Any:
    module_name, _, attribute = dotted.rpartition(".")
    if not module_name:
        raise ConfigError(f"{key} is {dotted}; it must be a name like agl.data.FileTasks")
    try:
        module = import_module(module_name)
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            extra = extra_with(error.name or "")
            if extra is not None:
                raise MissingExtraError(dotted, extra) from error
            raise ConfigError(f"{key}: {dotted} needs {error.name}, which is not installed") from error
        parent = sys.modules.get(error.name.rpartition(".")[0])
        raise ConfigError(f"{key}: there is no module {error.name}{_siblings(error.name, parent)}") from error
    if not hasattr(module, attribute):
        names = [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))]
        raise ConfigError(f"{key}: {module_name} has no {attribute}{nearest(attribute, names, module_name)}")
    return getattr(module, attribute)


def _siblings(missing: str, parent: Any) -> str:
    folders = [Path(folder) for folder in getattr(parent, "__path__", [])]
    names = sorted(
        {path.stem for folder in folders for path in folder.iterdir() if not path.name.startswith("_")}
    )
    return nearest(missing.rpartition(".")[2], names, missing.rpartition(".")[0])
