"""Questions to the optimizer model out of POML files: the built-in ones, or a user's own in their place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.rewriting import placeholder_text
from agl.errors import ConfigError, InvalidRequestError, require_extra
from agl.types.prompt import poml_messages

BUILT_IN = Path(__file__).parent
AT_ONCE = 4
"""Node programs: each takes a second of a core, and 100 MB."""


def markup_file(given: str | None, built_in: str, *, setting: str) -> Path:
    """Return the POML file of a setting.

    Args:
        given: the user's path; None is the built-in file.
        built_in: its name in this folder.
        setting: for the message.

    Raises:
        ConfigError: there is no such file.
        MissingExtraError: poml is not installed.
    """
    require_extra("prompt optimization", "apo", "poml")
    path = BUILT_IN / built_in if given is None else Path(given).expanduser()
    if not path.is_file():
        raise ConfigError(f"{setting} is {given}, and there is no such file")
    return path


def _messages(path: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        messages = poml_messages(path.read_text(encoding="utf-8"), values)
    except (InvalidRequestError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be made into a question: {error}") from error
    if not messages:
        raise ConfigError(f"{path} makes no message")
    return messages


class Questions:
    """Renders POML files, each with the same values once, some side by side, beside the event loop.

    Args:
        render: makes chat messages of a file and values.
    """

    def __init__(self, render: Callable[[Path, Mapping[str, Any]], list[dict[str, Any]]] = _messages) -> None:
        self._render = render
        self._rendered: dict[str, asyncio.Task[list[dict[str, Any]]]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def messages(self, path: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the file's chat messages with these values in it.

        Raises:
            ConfigError: the file cannot be read or rendered.
        """
        key = json.dumps([str(path), values], sort_keys=True)
        if key not in self._rendered:
            self._rendered[key] = asyncio.create_task(self._in_thread(path, values))
        return await asyncio.shield(self._rendered[key])

    async def _in_thread(self, path: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        async with self._slots:
            return await asyncio.to_thread(self._render, path, values)


def values_of(candidate: Candidate, name: str) -> dict[str, Any]:
    """Return what every question about a prompt may say: the prompt, its name, its placeholders, and the marks."""
    prompt = candidate.prompts[name]
    return {
        "prompt": prompt.template,
        "name": name,
        "placeholders": [placeholder_text(prompt, one) for one in sorted(prompt.placeholders)],
        "opening": "<prompt>",
        "closing": "</prompt>",
    }
