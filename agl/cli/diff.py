"""agl diff: prompts as a text diff, settings and numbers side by side, policies by their evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from agl.cli.compared import PROMPT, Side, common_evaluations, side_named
from agl.cli.eval import Found, evaluated
from agl.cli.eval_report import comparison_lines
from agl.cli.eval_settings import Options as EvalOptions
from agl.cli.eval_settings import eval_settings
from agl.cli.text import Column, fields, number, plain, say, say_json, table, terminal_width, wrapped
from agl.cli.train import tune_process
from agl.errors import ConfigError
from agl.evaluation.comparison import Comparison, compare
from agl.evaluation.report import task_runs_from_json
from agl.types import Json, PromptTemplate

SHOWN = 12
"""Numbers of the runs; ``--json`` has all."""
_FIRST = ("val/", "search/best", "train/reward", "policy/version", "rollouts/")
"""How the numbers are named that are shown before others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of ``agl diff``."""

    first: str
    second: str
    overrides: Sequence[str] = ()
    exit_code: bool = False
    evaluate: bool = False
    repeats: int | None = None
    mode: str | None = None
    limit: int | None = None
    store_url: str | None = None
    run_dir: str | None = None
    config_dir: Path | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs between two sides.

    Args:
        first: the first side.
        second: the second.
        prompts: a unified diff of each prompt that differs, by resource name.
        settings: both values of each that differs, by dotted key; None where one side has none.
        resources: likewise of what else is in resources.
        numbers: both values of each metric.
        comparison: of their evaluations, the first minus the second; None where there are none.
        evaluations: the folders of these.
    """

    first: Side
    second: Side
    prompts: Mapping[str, list[str]]
    settings: Mapping[str, tuple[Json, Json]]
    resources: Mapping[str, tuple[Json, Json]]
    numbers: Mapping[str, tuple[float | None, float | None]]
    comparison: Comparison | None = None
    evaluations: Sequence[str] = field(default_factory=list[str])

    @property
    def different(self) -> bool:
        """Whether prompts, settings or resources differ."""
        return bool(self.prompts or self.settings or self.resources)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "first": {"name": self.first.name, "kind": self.first.kind},
            "second": {"name": self.second.name, "kind": self.second.kind},
            "different": self.different,
            "prompts": dict(self.prompts),
            "settings": {key: list(pair) for key, pair in self.settings.items()},
            "resources": {key: list(pair) for key, pair in self.resources.items()},
            "numbers": {key: list(pair) for key, pair in self.numbers.items()},
            "comparison": None if self.comparison is None else self.comparison.as_json(),
            "evaluations": list(self.evaluations),
        }


def main(options: Options) -> None:
    """Compare and print.

    Raises:
        ConfigError: a name that stands for nothing, or what cannot be compared.
        typer.Exit: with 1, with ``exit_code`` where something differs.
    """
    if not options.evaluate:
        for name in ("repeats", "mode", "limit"):
            if getattr(options, name) is not None:
                raise ConfigError(f"--{name} is for --evaluate: without it nothing is run")
        if options.overrides:
            raise ConfigError(
                f"{options.overrides[0]}: agl diff takes two names; overrides are for --evaluate"
            )
    first = side_named(options.first, options.store_url, options.run_dir)
    second = side_named(options.second, options.store_url, options.run_dir)
    found = difference(first, second)
    if options.evaluate:
        found = _evaluated(options, found)
    if options.as_json:
        say_json(found.as_json())
    else:
        say(lines_of(found, terminal_width()))
    if options.exit_code and found.different:
        raise typer.Exit(1)


def difference(first: Side, second: Side) -> Difference:
    """Compare two sides, with the newest evaluations of both that have tasks in common.

    Raises:
        ConfigError: a prompt's file against something with several prompts, or with none.
    """
    comparison, folders = None, list[str]()
    common = common_evaluations(first, second) if "file" not in (first.kind, second.kind) else None
    if common is not None:
        (folder, report), (other_folder, other) = common
        folders = [str(folder), str(other_folder)]
        comparison = compare(
            task_runs_from_json(report["tasks"]),
            task_runs_from_json(other["tasks"]),
            threshold=report["threshold"],
        )
    is_run = first.settings is not None and second.settings is not None
    return Difference(
        first=first,
        second=second,
        prompts=_prompts(*_paired(first, second)),
        settings=_changed(first.settings or {}, second.settings or {}) if is_run else {},
        resources={} if "file" in (first.kind, second.kind) else _changed(first.resources, second.resources),
        numbers={
            name: (first.numbers.get(name), second.numbers.get(name))
            for name in sorted({*first.numbers, *second.numbers})
        }
        if is_run
        else {},
        comparison=comparison,
        evaluations=folders,
    )


def _paired(first: Side, second: Side) -> tuple[Mapping[str, PromptTemplate], Mapping[str, PromptTemplate]]:
    """The prompts of both by a common name: a file's is compared with the only one of the other side."""
    if (first.kind == "file") == (second.kind == "file"):
        return first.prompts, second.prompts
    file, other = (first, second) if first.kind == "file" else (second, first)
    if len(other.prompts) != 1:
        names = f"the prompts {', '.join(other.prompts)}" if other.prompts else "no prompts"
        raise ConfigError(
            f"{other.name} has {names}, and {file.name} is one: compare it with a file (prompts/best/ of a run)"
        )
    name = next(iter(other.prompts))
    renamed = {name: file.prompts[PROMPT]}
    return (renamed, other.prompts) if file is first else (other.prompts, renamed)


def _prompts(
    first: Mapping[str, PromptTemplate], second: Mapping[str, PromptTemplate]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys([*first, *second]):
        before, after = first.get(name), second.get(name)
        if before is not None and after is not None and before.template_id == after.template_id:
            continue
        nothing = PromptTemplate(template="")
        lines = (before or nothing).diff(after or nothing).splitlines()
        if before is not None and after is not None and before.engine != after.engine:
            lines.insert(0, f"engine: {before.engine} -> {after.engine}")
        found[name] = lines or ["the line break at its end"]
    return found


def _changed(first: Mapping[str, Json], second: Mapping[str, Json]) -> dict[str, tuple[Json, Json]]:
    return {
        key: (first.get(key), second.get(key))
        for key in dict.fromkeys([*first, *second])
        if (key in first) != (key in second) or first[key] != second[key]
    }


def _evaluated(options: Options, found: Difference) -> Difference:
    """Measure both now; the comparison is that of the new evaluation."""
    for side in (found.first, found.second):
        if side.kind == "file":
            raise ConfigError(
                f"--evaluate {side.name}: a file alone cannot be measured; name a run or resources, or take agl eval"
            )
    tune_process()
    asked = EvalOptions(
        resources=options.first,
        against=options.second,
        repeats=options.repeats,
        mode=options.mode,
        limit=options.limit,
        store_url=options.store_url,
        config_dir=options.config_dir,
    )
    measured: Found = evaluated(eval_settings(options.overrides, asked), asked)
    return Difference(
        first=found.first,
        second=found.second,
        prompts=found.prompts,
        settings=found.settings,
        resources=found.resources,
        numbers=found.numbers,
        comparison=measured.comparison,
        evaluations=[str(measured.folder)],
    )


def lines_of(found: Difference, width: int) -> list[str]:
    """Return what differs, for people."""
    lines = fields([("A", f"{found.first.name} ({found.first.kind})")], width=width, label_width=4)
    lines += fields([("B", f"{found.second.name} ({found.second.kind})")], width=width, label_width=4)
    for name, diff in found.prompts.items():
        lines += ["", f"Prompt {plain(name)}"]
        lines += [part for line in diff for part in _broken(line, width)]
    for title, changed in (("Settings", found.settings), ("Resources", found.resources)):
        if changed:
            rows = [(key, _value(before), _value(after)) for key, (before, after) in changed.items()]
            lines += ["", *table(_columns(title), rows, width=width)]
    if found.numbers:
        lines += ["", *_numbers(found.numbers, width)]
    if found.comparison is not None:
        where = " and ".join(dict.fromkeys(found.evaluations))
        lines += ["", *wrapped(f"Evaluated in {where}; A minus B", width=width)]
        for line in comparison_lines(found.comparison, "A", "B"):
            lines += wrapped(line, width=width)
    if not found.different:
        same = "Prompts, settings and resources are the same."
        lines += ["", same if _has_any(found) else "There is nothing to compare."]
    return lines


def _has_any(found: Difference) -> bool:
    sides = (found.first, found.second)
    return any(side.prompts or side.settings or side.resources for side in sides)


def _columns(title: str) -> list[Column]:
    return [Column(title=title, least=16), Column(title="A", least=10), Column(title="B", least=10)]


def _value(value: Json) -> object:
    return value if isinstance(value, str) or value is None else plain(value)


def _broken(line: str, width: int) -> list[str]:
    """A line of a diff, each part of it with the line's sign."""
    if line.startswith(("+", "-", " ")) and not line.startswith(("+++", "---")):
        return [f"{line[0]}{part}" for part in wrapped(line[1:], width=width - 1)]
    return wrapped(line, width=width)


def _numbers(numbers: Mapping[str, tuple[float | None, float | None]], width: int) -> list[str]:
    """The numbers that matter most, then the others, up to some."""

    def rank(name: str) -> int:
        return next((place for place, begin in enumerate(_FIRST) if name.startswith(begin)), len(_FIRST))

    names = sorted(numbers, key=lambda name: (rank(name), name))
    rows = [
        (name, number(numbers[name][0]), number(numbers[name][1]), _minus(*numbers[name])) for name in names
    ]
    columns = [
        Column(title="Last number", least=16),
        Column(title="A", align="right"),
        Column(title="B", align="right"),
        Column(title="B - A", align="right"),
    ]
    more = [f"... and {len(rows) - SHOWN} more (--json has all)"] if len(rows) > SHOWN else []
    return [*table(columns, rows[:SHOWN], width=width), *more]


def _minus(first: float | None, second: float | None) -> str:
    return number(None) if first is None or second is None else f"{second - first:+.4g}"
