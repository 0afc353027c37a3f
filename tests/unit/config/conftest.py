"""A small world to configure: a root, a group, recipes and the classes that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

CLASSES = """
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol


class Engine(Protocol):
    model: str

    def answer(self) -> str: ...


class Echo:
    def __init__(self, *, model: str = "echo") -> None:
        self.model = model

    def answer(self) -> str:
        return self.model


class Mute:
    model = "mute"


@dataclass(frozen=True, kw_only=True)
class Credit:
    gamma: float = 1.0


class Group:
    def __init__(
        self,
        *,
        group_size: int = 8,
        learning_rate: float = 1e-4,
        kind: Literal["mean", "best"] = "mean",
        names: tuple[str, ...] = (),
        limit: int | None = None,
        credit: Credit | None = None,
        folder: Path | None = None,
        score: Callable[..., float] | None = None,
        engines: list[Engine] | None = None,
    ) -> None:
        if group_size < 2:
            raise ValueError("group_size must be at least 2")
        if limit == 404:
            raise FileNotFoundError("no such\\nfile")
        self.settings = dict(
            group_size=group_size, learning_rate=learning_rate, kind=kind, names=names, limit=limit, credit=credit,
            folder=folder, score=score, engines=engines,
        )


class Root:
    def __init__(
        self, *, name: str, algorithm: Group, run_dir: str, seed: int = 0, api_key: str = "none",
        engine: Engine | None = None, extra: Any = None,
    ) -> None:
        self.name, self.algorithm, self.run_dir, self.seed = name, algorithm, run_dir, seed
        self.api_key, self.engine, self.extra = api_key, engine, extra


def double(x: float) -> float:
    return 2 * x


NUMBER = 3
"""

FILES = {
    "train.yaml": """
        defaults:
          - algorithm: grpo
          - _self_
        _target_: {classes}:Root
        name: ???
        run_dir: runs/${{now:%Y-%m-%d}}-${{name}}
        seed: 0
        api_key: none
        engine: null
        extra: null
        trusted: [{folder}]
        """,
    "algorithm/grpo.yaml": """
        _target_: {classes}:Group
        group_size: 8
        learning_rate: 1e-4
        kind: mean
        names: []
        limit: null
        credit: null
        folder: null
        score: null
        engines: null
        """,
    "algorithm/ppo.yaml": """
        _target_: {classes}:Group
        group_size: 2
        learning_rate: 1e-4
        """,
    "recipe/sql.yaml": """
        # @package _global_
        name: sql
        """,
    "recipe/chat.yaml": """
        # @package _global_
        defaults:
          - override /algorithm: ppo
          - _self_
        name: chat
        """,
}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder of configs whose targets are classes of a file beside them."""
    from textwrap import dedent

    classes = tmp_path / "classes.py"
    classes.write_text(CLASSES)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text).lstrip().format(classes=classes, folder=tmp_path))
    return tmp_path
