"""Write the folder of a new recipe: the files of recipes/starter with the name and the agent put in."""

from __future__ import annotations

import keyword
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agl.cli.starters import FRAMEWORKS, Starter
from agl.errors import ConfigError

NAME_IN_FILES = "STARTER"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_DEVICES = re.compile(r"(?i:con|prn|aux|nul|(com|lpt)[0-9])")
"""Names that Windows gives to no file (https://learn.microsoft.com/windows/win32/fileio/naming-a-file)."""
_RENAMED: Mapping[str, str] = {"gitignore": ".gitignore"}
_SKIPPED = ("__pycache__",)


def check_name(name: str, *, taken: Sequence[str]) -> None:
    """Check that a recipe can be called that.

    Args:
        name: of the recipe, its folder and its settings.
        taken: the names of agl's own recipes, which would hide it.

    Raises:
        ConfigError: it cannot; says what can.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or _DEVICES.fullmatch(name):
        near = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60]
        if not _NAME.fullmatch(near) or keyword.iskeyword(near) or _DEVICES.fullmatch(near):
            near = f"my_{near}".rstrip("_") if near else "my_agent"
        raise ConfigError(
            f"{name!r} cannot be the name of a recipe: take letters, digits and _, a letter first, and no word of"
            f" Python's or Windows' own, for example {near}"
        )
    if name in taken:
        raise ConfigError(f"agl has a recipe {name} itself: choose another name, for example my_{name}")


def write_recipe(folder: Path, starter: Starter, *, templates: Path) -> list[Path]:
    """Write the recipe that the folder's name names, whole or not at all; return its files, in order.

    Args:
        folder: to make; one that is there must be empty.
        starter: what its agent is written with.
        templates: the folder recipes/starter.

    Raises:
        ConfigError: something is in the way, or the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already: choose another name, or move it out of the way")
    partial = folder.with_name(f".{folder.name}.part-{os.getpid()}")
    try:
        partial.mkdir()
        for root in (templates / "folder", templates / "agents" / starter.value):
            for source in sorted(root.rglob("*")):
                if source.is_file() and not set(source.parts) & set(_SKIPPED):
                    _copy(source, partial / source.relative_to(root), name=folder.name, starter=starter)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(source: Path, to: Path, *, name: str, starter: Starter) -> None:
    framework = FRAMEWORKS[starter]
    text = source.read_text(encoding="utf-8")
    for placeholder, value in (
        (NAME_IN_FILES, name),
        ("AGENT_WORDS", framework.words),
        ("INSTALL_LINE", framework.install_line),
        ("PYTHON", "python" if os.name == "nt" else "python3"),
    ):
        text = text.replace(placeholder, value)
    to = to.with_name(_RENAMED.get(to.name, to.name).replace(NAME_IN_FILES, name))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8", newline="\n")
