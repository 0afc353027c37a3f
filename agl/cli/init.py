"""agl init: a folder with a recipe that trains at once, and the commands that come next."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from agl.cli.new_recipe import check_name, write_recipe
from agl.cli.starters import FRAMEWORKS, Starter
from agl.config import built_in_folder

NEEDED = ("torch", "transformers", "pytest")


def main(name: str, starter: Starter, *, as_json: bool) -> None:
    """Write the folder and say what is in it, and what to do next.

    Raises:
        ConfigError: the name cannot be a recipe's, or there is such a folder.
    """
    own = [path.stem for path in (built_in_folder("configs") / "recipe").glob("*.yaml")]
    check_name(name, taken=own)
    folder = Path(name)
    files = [
        path.as_posix()
        for path in write_recipe(folder, starter, templates=built_in_folder("recipes") / "starter")
    ]
    framework = FRAMEWORKS[starter]
    missing = [module for module in (*framework.modules, *NEEDED) if find_spec(module) is None]
    commands = [
        f"cd {name}",
        *([framework.install_line] if missing else []),
        f"agl doctor +recipe={name}",
        "python -m pytest",
        f"agl train +recipe={name}",
    ]
    if as_json:
        print(json.dumps({"folder": name, "files": files, "missing": missing, "next": commands}, indent=1))
        return
    lines = [
        f"{name}/ is a recipe whose agent is {_phrase(framework.words)}:",
        *(f"  {file}" for file in files),
    ]
    if missing:
        lines += ["", f"Not installed yet: {', '.join(missing)}."]
    print("\n".join([*lines, "", "Next:", *(f"  {command}" for command in commands)]))


def _phrase(words: str) -> str:
    return (
        words
        if words.startswith("a ")
        else f"written {words}"
        if words.startswith("with")
        else f"one {words}"
    )
