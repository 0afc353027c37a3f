"""Data: files or a function of the recipe -> tasks, and the order in which iterations take them.

A task is any JSON value. The order is a pure function of seed and position, so a resumed run needs only the number of
its iteration to go on with the very next tasks.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from agl.errors import ConfigError
from agl.types import Json, Mode


class TaskData(Protocol):
    """Where tasks come from. Loading may read files and run the recipe's code; it has no other effect."""

    def load(self, mode: Mode) -> list[Json]:
        """Return the tasks of ``train``, ``val`` or ``test``; empty where the data has no such part.

        Raises:
            ConfigError: a file or a function at fault, naming file and line.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTasks:
    """The tasks of one run."""

    train: list[Json]
    val: list[Json]


def chosen_tasks(
    data: TaskData | None,
    train: TaskData | Sequence[Json] | None = None,
    val: TaskData | Sequence[Json] | None = None,
) -> ChosenTasks:
    """Return the tasks of a run: what is given for a part, else what ``data`` has; ``train`` as data brings its own.

    Raises:
        ConfigError: nothing says where tasks come from, or loading fails.
    """
    if data is None and train is None and val is None:
        raise ConfigError("there are no tasks: give Trainer(data=...) or fit(agent, train, val)")
    others = data if train is None or isinstance(train, Sequence) else train
    return ChosenTasks(
        train=_part(others if train is None else train, "train"),
        val=_part(others if val is None else val, "val"),
    )


def _part(source: TaskData | Sequence[Json] | None, mode: Mode) -> list[Json]:
    if source is None:
        return []
    if isinstance(source, str):
        raise ConfigError(f"{mode}: tasks are a list or data such as FileTasks, not the text {source!r}")
    if isinstance(source, Sequence):
        return list(source)
    try:
        return source.load(mode)
    except (ValueError, OSError) as error:
        raise ConfigError(f"data: {error}") from error


class FileTasks:
    """Tasks from ``.jsonl`` files (one task a line) or ``.json`` files (one list of tasks).

    Args:
        train: the file of the training tasks.
        val: the file of the held-out tasks on which progress is shown; None is none.
        test: the file of the tasks for the final measurement; None is none.
        num_train: use only the first so many; None is all.
        num_val: the same for ``val``.
        num_test: the same for ``test``.
    """

    def __init__(
        self,
        *,
        train: str,
        val: str | None = None,
        test: str | None = None,
        num_train: int | None = None,
        num_val: int | None = None,
        num_test: int | None = None,
    ) -> None:
        self._files: dict[Mode, str | None] = {"train": train, "val": val, "test": test}
        self._limits = _limits(num_train, num_val, num_test)
        for mode, file in self._files.items():
            if file is None:
                continue
            path = Path(file).expanduser()
            if path.suffix not in (".jsonl", ".json"):
                raise ConfigError(f"{mode} is {file}; tasks come from a .jsonl or a .json file")
            if not path.is_file():
                raise ConfigError(f"{mode} is {file}, and there is no such file{_similar_file(path)}")

    def load(self, mode: Mode) -> list[Json]:
        """Read the tasks of that part."""
        file = self._files[mode]
        if file is None:
            return []
        path = Path(file).expanduser()
        tasks = tasks_from_jsonl(path) if path.suffix == ".jsonl" else tasks_from_json(path)
        return _not_empty(tasks[: self._limits[mode]], str(path))


class FunctionTasks:
    """Tasks from a function of the recipe, called as ``function(split=..., limit=..., **arguments)``.

    Args:
        function: returns a list of tasks; in settings ``file.py:name`` or ``pkg.mod:name``. ``limit`` is optional.
        arguments: further keyword arguments.
        train_split: the ``split`` of the training tasks.
        val_split: of the held-out tasks on which progress is shown; None is none.
        test_split: of the tasks for the final measurement; None is none.
        num_train: use only so many; None is what the function returns.
        num_val: the same for ``val``.
        num_test: the same for ``test``.
    """

    def __init__(
        self,
        *,
        function: Callable[..., Iterable[Json]],
        arguments: Mapping[str, Json] | None = None,
        train_split: str = "train",
        val_split: str | None = "val",
        test_split: str | None = None,
        num_train: int | None = None,
        num_val: int | None = None,
        num_test: int | None = None,
    ) -> None:
        self._function = function
        self._arguments = dict(arguments or {})
        self._splits: dict[Mode, str | None] = {"train": train_split, "val": val_split, "test": test_split}
        self._limits = _limits(num_train, num_val, num_test)
        self._takes_limit = _check_arguments(function, self._arguments)

    def load(self, mode: Mode) -> list[Json]:
        """Call the function for that part."""
        split = self._splits[mode]
        if split is None:
            return []
        name = getattr(self._function, "__name__", "function")
        limit = self._limits[mode]
        extra: dict[str, Json] = {"limit": limit} if self._takes_limit else {}
        try:
            tasks = list(self._function(split=split, **extra, **self._arguments))
        except (ValueError, OSError) as error:
            raise ConfigError(f"{name}(split={split!r}): {' '.join(str(error).split())}") from error
        return _not_empty(tasks[:limit], f"{name}(split={split!r})")


def _limits(num_train: int | None, num_val: int | None, num_test: int | None) -> dict[Mode, int | None]:
    limits: dict[Mode, int | None] = {"train": num_train, "val": num_val, "test": num_test}
    for mode, limit in limits.items():
        if limit is not None and limit < 1:
            raise ConfigError(f"num_{mode} is {limit}; it must be at least 1, or null for all tasks")
    return limits


def _similar_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor a folder {path.parent})"
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 1)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def _check_arguments(function: Callable[..., object], arguments: Mapping[str, Json]) -> bool:
    """Check the arguments against the signature; tell whether the function takes a ``limit``."""
    name = getattr(function, "__name__", "function")
    parameters = inspect.signature(function).parameters
    names = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "split" not in names and not takes_any:
        raise ConfigError(
            f"{name} takes no argument called split; agl calls it as {name}(split='train', ...)"
        )
    for given in arguments:
        if given in ("split", "limit"):
            raise ConfigError(
                f"arguments.{given}: agl gives {given} itself; use train_split, num_train and the like"
            )
        if given not in names and not takes_any:
            near = difflib.get_close_matches(given, names, 1)
            hint = f"; did you mean arguments.{near[0]}?" if near else f"; it takes {', '.join(names)}"
            raise ConfigError(f"arguments.{given} is not an argument of {name}{hint}")
    for needed in names:
        has_default = parameters[needed].default is not inspect.Parameter.empty
        if needed not in ("split", "limit", *arguments) and not has_default:
            raise ConfigError(f"arguments.{needed} is missing: {name} requires it")
    return "limit" in names or takes_any


def _not_empty(tasks: list[Json], source: str) -> list[Json]:
    if not tasks:
        raise ConfigError(f"{source} has no tasks")
    return tasks


def tasks_from_jsonl(path: Path) -> list[Json]:
    """Return one task a line; empty lines are passed over.

    Raises:
        ConfigError: a line that is not JSON, naming file and line.
    """
    tasks: list[Json] = []
    for number, line in enumerate(_bytes(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            tasks.append(_json(line))
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: not a JSON value: {_reason(error)}") from error
    return tasks


def tasks_from_json(path: Path) -> list[Json]:
    """Return the tasks of a file that is one JSON list.

    Raises:
        ConfigError: not JSON, naming file and line, or not a list.
    """
    try:
        tasks = _json(_bytes(path))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {_reason(error)}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {_reason(error)}") from error
    if not isinstance(tasks, list):
        raise ConfigError(f"{path} holds one {type(tasks).__name__}; it must be a list of tasks")
    return cast("list[Json]", tasks)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _json(text: bytes) -> Any:
    return json.loads(text.decode("utf-8"), parse_constant=_refused)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON value")


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


@dataclass(frozen=True, slots=True)
class TaskPosition:
    """Which task, in which pass over the data."""

    epoch: int
    """From 0."""
    index: int
    """Into the list of tasks."""


def task_order(num_tasks: int, *, seed: int, epoch: int) -> list[int]:
    """Return the order of the tasks in one pass: a permutation that depends on the arguments alone.

    Sorted by hashes rather than shuffled by ``random``, whose shuffle may differ between Python versions.
    """
    return sorted(
        range(num_tasks), key=lambda index: hashlib.sha256(f"{seed}/{epoch}/{index}".encode()).digest()
    )


def tasks_of_iteration(
    num_tasks: int, per_iteration: int, iteration: int, *, seed: int
) -> list[TaskPosition]:
    """Return the tasks of an iteration, counted from 1: consecutive stretches of one pass after the other.

    An iteration may reach over the end of a pass into the next, so that every task is used equally often.

    Raises:
        ValueError: no tasks, none per iteration, or an iteration below 1.
    """
    if num_tasks < 1 or per_iteration < 1 or iteration < 1:
        raise ValueError(
            f"no such iteration: {num_tasks} tasks, {per_iteration} per iteration, iteration {iteration}"
        )
    first = (iteration - 1) * per_iteration
    places = range(first, first + per_iteration)
    orders: dict[int, Sequence[int]] = {
        epoch: task_order(num_tasks, seed=seed, epoch=epoch)
        for epoch in range(places[0] // num_tasks, places[-1] // num_tasks + 1)
    }
    return [
        TaskPosition(place // num_tasks, orders[place // num_tasks][place % num_tasks]) for place in places
    ]


def iterations_of_epochs(num_tasks: int, per_iteration: int, *, epochs: int) -> int:
    """Return how many iterations it takes to have used every task at least ``epochs`` times."""
    return math.ceil(num_tasks * epochs / per_iteration)
