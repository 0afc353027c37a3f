"""The data: each split loads, how many tasks it has, and whether held-out tasks are held out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args

from agl.data import TaskData
from agl.doctor.findings import Finding, failure, fine, warning
from agl.types import Json, Mode

SHOWN = 60
FEW = 10
"""Held-out tasks: an interval of their mean is wider than what training gains."""


def data(source: TaskData, *, needs_train: bool) -> list[Finding]:
    """Load every split and look at it.

    Args:
        source: built.
        needs_train: whether weights are trained, which takes training tasks.
    """
    splits: dict[Mode, list[Json]] = {mode: source.load(mode) for mode in get_args(Mode)}
    found = [_split(mode, tasks) for mode, tasks in splits.items() if tasks]
    if needs_train and not splits["train"]:
        found.append(
            failure("data", "there are no training tasks", "give data.train=FILE, or another data group")
        )
    if not splits["val"]:
        fix = "give data.val=FILE: without held-out tasks nobody sees whether it learns"
        found.append(warning("data", "there are no validation tasks", fix))
    elif len(splits["val"]) < FEW:
        fix = "take more: the interval of so few tasks hides what training gains"
        found.append(warning("data", f"only {len(splits['val'])} validation tasks", fix))
    return [*found, *_twice(splits["train"]), *_shared(splits)]


def _split(mode: Mode, tasks: Sequence[Json]) -> Finding:
    first = json.dumps(tasks[0], ensure_ascii=False)
    shown = "".join(sign if sign.isprintable() else " " for sign in first)
    shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
    return fine(f"data {mode}", f"{len(tasks)} tasks, first {shown}")


def _twice(tasks: Sequence[Json]) -> list[Finding]:
    again = len(tasks) - len(set(map(_key, tasks)))
    if not again:
        return []
    fix = "leave them out, unless they are to count more"
    return [warning("data train", f"{again} of {len(tasks)} tasks are there already", fix)]


def _shared(splits: dict[Mode, list[Json]]) -> list[Finding]:
    known = set(map(_key, splits["train"]))
    found: list[Finding] = []
    for mode in ("val", "test"):
        shared = sum(_key(task) in known for task in splits[mode])
        if shared:
            fix = f"take them out of one of the two: {mode} is to show tasks that training has not seen"
            found.append(
                warning(f"data {mode}", f"{shared} of {len(splits[mode])} tasks are training tasks", fix)
            )
    return found


def _key(task: Json) -> str:
    return json.dumps(task, sort_keys=True)
