"""What a shell offers for what is being typed: recipes, options of groups, their settings, names of runs.

Files are listed and read as text, without Hydra, as a shell asks at every press of a key.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import cast

import typer

import agl
from agl.cli.run_folder import RUNS, SETTINGS_FILE

ROOT = "train"
"""The settings that overrides are about, unless a command has its own."""
RECIPE = "recipe"
ASKED_BY = "_AGL_COMPLETE"
"""The variable by which a shell asks."""
_KEY = re.compile(r"^([A-Za-z]\w*):", re.MULTILINE)
_CHOICE = r"^\s*-\s+(?:override\s+/)?{group}:\s*(\w+)"
_BREAKS = re.compile(r"[=:]+")
"""At which bash takes words apart (COMP_WORDBREAKS)."""


def complete_overrides(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the overrides that a word may become."""
    given = cast("Sequence[str] | None", ctx.params.get("overrides"))
    return candidates(incomplete, given or (), config_folders())


def complete_runs(incomplete: str) -> list[str]:
    """Return the names of runs under ``runs/`` that a word may become, the newest first."""
    found = [path.parent.name for path in RUNS.glob(f"*/{SETTINGS_FILE}")]
    return sorted((name for name in found if name.startswith(incomplete)), reverse=True)


def config_folders() -> list[Path]:
    """Return the folders of config groups that are there: built in, and ``./configs``."""
    package = Path(agl.__file__).parent
    installed = package / "configs"
    own = installed if installed.is_dir() else package.parent / "configs"
    return [folder for folder in (own, Path("configs")) if folder.is_dir()]


def candidates(incomplete: str, given: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Return the overrides that a word may become.

    Args:
        incomplete: the word so far.
        given: the overrides before it, which say which option of a group has the settings.
        folders: of config groups.
    """
    sign = "+" if incomplete.startswith("+") else ""
    name, is_assigned, _ = incomplete.removeprefix("+").partition("=")
    if is_assigned:
        found = [f"{sign}{name}={option}" for option in _options(name, folders)]
    elif "." in name:
        group = name.partition(".")[0]
        found = [f"{sign}{group}.{key}=" for key in _settings(group, given, folders)]
    elif not incomplete or sign:
        found = [f"+{RECIPE}={option}" for option in _options(RECIPE, folders)]
    else:
        groups = [group for group in _groups(folders) if group.startswith(name)]
        found = [f"{group}={option}" for group in groups for option in _options(group, folders)]
    return [one for one in found if one.startswith(incomplete)]


def _groups(folders: Sequence[Path]) -> list[str]:
    names = {path.name for folder in folders for path in folder.iterdir() if path.is_dir()}
    return sorted(names - {RECIPE})


def _options(group: str, folders: Sequence[Path]) -> list[str]:
    if not group.isidentifier():
        return []
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def _settings(group: str, given: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The settings of the option of a group that is in force."""
    option = _option_in_force(group, given, folders)
    text = _text(f"{group}/{option}.yaml", folders) if option else ""
    return _KEY.findall(text)


def _option_in_force(group: str, given: Sequence[str], folders: Sequence[Path]) -> str | None:
    split = [one.removeprefix("+").partition("=") for one in given]
    chosen = {name: option for name, _, option in split}
    if group in chosen:
        return chosen[group]
    recipe = _text(f"{RECIPE}/{chosen[RECIPE]}.yaml", folders) if RECIPE in chosen else ""
    pattern = re.compile(_CHOICE.format(group=re.escape(group)), re.MULTILINE)
    for text in (recipe, _text(f"{ROOT}.yaml", folders)):
        found = pattern.search(text)
        if found:
            return found.group(1)
    return None


def _text(name: str, folders: Sequence[Path]) -> str:
    for folder in folders:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (folder / name).read_text(encoding="utf-8")
    return ""


def answering_bash(run: Callable[[], None], environ: MutableMapping[str, str] = os.environ) -> None:
    """Run the app; where bash asks for completions, give it the word whole, and it what is left of the answers.

    bash takes ``+recipe=ppo_sql`` for three words and replaces the last of them.
    """
    if environ.get(ASKED_BY) != "complete_bash" or "COMP_WORDS" not in environ:
        run()
        return
    words, current = joined(environ["COMP_WORDS"].split("\n"), int(environ.get("COMP_CWORD") or 0))
    environ.update({"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(current)})
    word = words[current] if current < len(words) else ""
    breaks = list(_BREAKS.finditer(word))
    there = word[: breaks[-1].end()] if breaks else ""
    answers = io.StringIO()
    try:
        with contextlib.redirect_stdout(answers):
            run()
    finally:
        print("\n".join(line.removeprefix(there) for line in answers.getvalue().splitlines()))


def joined(words: Sequence[str], current: int) -> tuple[list[str], int]:
    """Return the words with those that bash took apart put together, and where the current one is then."""
    whole: list[str] = []
    place, is_open = 0, False
    for index, word in enumerate(words):
        breaks = bool(_BREAKS.fullmatch(word))
        if whole and (breaks or is_open):
            whole[-1] += word
        else:
            whole.append(word)
        is_open = breaks
        if index == current:
            place = len(whole) - 1
    return whole, place if current < len(words) else len(whole)
