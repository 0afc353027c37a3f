"""What ``agl diff`` compares: a run, resources or a prompt's file, as prompts, settings, numbers and evaluations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from agl.cli.contestants import REPORT_FILE
from agl.cli.named_records import record_named
from agl.cli.run_folder import RUNS, SETTINGS_FILE, run_folder
from agl.config.settings import leaves
from agl.errors import ConfigError
from agl.evaluation.report import task_runs_from_json
from agl.launch.finished_runs import best_prompts
from agl.metrics.settings import METRICS_FILE
from agl.store.base import LightningStore
from agl.types import Json, MetricQuery, NamedResources, PromptTemplate, Resource, Run
from agl.types.record import Record

PROMPT = "prompt"
"""What the prompt of a file is called: two files are compared whatever their names."""
_NOT_COMPARED = ("run_dir",)
"""Settings that differ between any two runs."""
_OF_PROCESS = ("base_url", "api_key")
"""Of resources: where a process that is gone had its proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison.

    Args:
        name: as it was given.
        kind: ``file``, ``run`` or ``resources``.
        prompts: by resource name.
        settings: by dotted key, as they are written down; None where there are none.
        resources: what else is in resources, by dotted key.
        numbers: the last value of each metric.
        folder: of a run that is here.
    """

    name: str
    kind: str
    prompts: Mapping[str, PromptTemplate] = field(default_factory=dict[str, PromptTemplate])
    settings: Mapping[str, Json] | None = None
    resources: Mapping[str, Json] = field(default_factory=dict[str, Json])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    folder: Path | None = None


def side_named(name: str, store_url: str | None, run_dir: str | None) -> Side:
    """Return what a name stands for: a run's folder, a file, else the id of resources or of a run.

    Raises:
        ConfigError: it is none of these, or cannot be read.
    """
    folder = run_folder(name)
    if folder is not None and store_url is None:
        return side_of_folder(name, folder)
    if Path(name).is_file():
        return Side(name=name, kind="file", prompts={PROMPT: _prompt_of_file(Path(name))})
    if name and Path(name).is_dir():
        raise ConfigError(f"{name} is no run: it has no {SETTINGS_FILE}")
    return asyncio.run(_recorded_side(name, store_url, run_dir))


async def _recorded_side(name: str, store_url: str | None, run_dir: str | None) -> Side:
    async with record_named(name, store_url, run_dir, kinds=("resources", "run")) as (store, record):
        if isinstance(record, NamedResources):
            return side_of_resources(name, record)
        assert isinstance(record, Run)
        return await _side_of_run(name, record, store)


def side_of_folder(name: str, folder: Path) -> Side:
    """Return a run by its folder: its settings, the prompts that it began with and the best of them, its last numbers.

    Raises:
        ConfigError: its settings cannot be read.
    """
    written = _settings(folder / SETTINGS_FILE)
    prompts = {**_prompts_in(written.get("resources")), **_prompts_in(best_prompts(folder))}
    return Side(
        name=name,
        kind="run",
        prompts=prompts,
        settings=_flat({key: value for key, value in written.items() if key != "resources"}),
        resources=_flat(_others(written.get("resources"))),
        numbers=_last_numbers(folder / METRICS_FILE),
        folder=folder,
    )


def side_of_resources(name: str, named: NamedResources) -> Side:
    """Return a version of resources: its prompts, and what else is in it."""
    prompts = {key: value for key, value in named.resources.items() if isinstance(value, PromptTemplate)}
    return Side(name=name, kind="resources", prompts=prompts, resources=_other_resources(named.resources))


async def _side_of_run(name: str, run: Run, store: LightningStore) -> Side:
    latest = await store.get_latest_resources(run_id=run.run_id)
    resources: Mapping[str, Resource] = {} if latest is None else latest.resources
    prompts = {key: value for key, value in resources.items() if isinstance(value, PromptTemplate)}
    numbers: dict[str, float] = {}
    query = MetricQuery(run_id=run.run_id)
    while True:
        page = await store.query_metrics(query)
        numbers |= {point.name: point.value for point in page.items}
        if page.next_cursor is None:
            break
        query = query.model_copy(update={"cursor": page.next_cursor})
    settings = {key: value for key, value in run.settings.items() if key != "resources"}
    return Side(
        name=name,
        kind="run",
        prompts=prompts,
        settings=_flat(settings),
        resources=_other_resources(resources),
        numbers=numbers,
    )


def _prompt_of_file(file: Path) -> PromptTemplate:
    engine = {".jinja": "jinja2", ".j2": "jinja2", ".poml": "poml"}.get(file.suffix, "f-string")
    try:
        return PromptTemplate(template=file.read_text(encoding="utf-8"), engine=cast("Any", engine))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text: {error}") from error


def _settings(file: Path) -> Mapping[str, Json]:
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    return cast("Mapping[str, Json]", found) if isinstance(found, dict) else {}


def _prompts_in(resources: object) -> dict[str, PromptTemplate]:
    """The prompt templates among resources as settings write them."""
    prompts: dict[str, PromptTemplate] = {}
    for name, value in _items(resources):
        try:
            if isinstance(value, Mapping) and "template" in value:
                known = {
                    key: one
                    for key, one in cast("Mapping[str, Json]", value).items()
                    if key in PromptTemplate.model_fields
                }
                prompts[name] = PromptTemplate.model_validate(known)
        except ValidationError:
            continue  # a value of the user's own that only looks like one
    return prompts


def _others(resources: object) -> dict[str, Json]:
    prompts = _prompts_in(resources)
    return {name: value for name, value in _items(resources) if name not in prompts}


def _items(resources: object) -> list[tuple[str, Json]]:
    if not isinstance(resources, Mapping):
        return []
    return [(str(name), value) for name, value in cast("Mapping[str, Json]", resources).items()]


def _other_resources(resources: Mapping[str, Resource]) -> dict[str, Json]:
    """What is in resources beside prompts, without addresses and secrets of a process that is gone."""
    others: dict[str, Json] = {}
    for name, value in resources.items():
        if isinstance(value, PromptTemplate):
            continue
        plain: Json = value.model_dump(mode="json") if isinstance(value, Record) else value
        if isinstance(value, Record):
            plain = {key: one for key, one in plain.items() if key not in _OF_PROCESS}
        others[name] = plain
    return _flat(others)


def _flat(values: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in leaves(dict(values)) if key not in _NOT_COMPARED}


def _last_numbers(file: Path) -> dict[str, float]:
    """The last value of each metric in a run's file; a line that a killed process did not finish is passed over."""
    numbers: dict[str, float] = {}
    if not file.is_file():
        return numbers
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                found = cast("object", json.loads(line))
            except ValueError:
                continue
            for name, value in _items(found):
                if name not in ("step", "time") and isinstance(value, int | float):
                    numbers[name] = float(value)
    return numbers


def evaluations_of(side: Side) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the reports on a run or resources, the newest first: its own where it is an evaluation, else those here.

    Args:
        side: a run by its folder, or resources by their id.
    """
    if side.folder is not None and (side.folder / REPORT_FILE).is_file():
        yield from _reports(side.folder, None)
        return
    files = sorted(RUNS.glob(f"*/{REPORT_FILE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files:
        yield from _reports(file.parent, side)


def _reports(folder: Path, side: Side | None) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The reports of an evaluation that are on that side; of an evaluation itself its first."""
    try:
        found = cast("Mapping[str, Any]", json.loads((folder / REPORT_FILE).read_text(encoding="utf-8")))
        reports = [found["evaluated"]] if side is None else [found["evaluated"], found.get("against")]
        for report in reports:
            if report is None:
                continue
            task_runs_from_json(report["tasks"])
            float(report["threshold"])
            if side is None or _is_on(report, side):
                yield folder, report
    except (OSError, ValueError, KeyError, TypeError):
        return  # damaged, or not an evaluation's


def _is_on(report: Mapping[str, Any], side: Side) -> bool:
    contestant = str(report["contestant"])
    if side.kind == "resources":
        return side.name in (contestant, report.get("resources_id"))
    folder = run_folder(contestant)
    return folder is not None and side.folder is not None and folder.resolve() == side.folder.resolve()


def common_evaluations(
    first: Side, second: Side
) -> tuple[tuple[Path, Mapping[str, Any]], tuple[Path, Mapping[str, Any]]] | None:
    """Return the newest recorded evaluation of each side that have tasks in common, None where there are none."""
    others = list(evaluations_of(second))
    for one in evaluations_of(first):
        ids = _task_ids(one[1])
        for other in others:
            if ids & _task_ids(other[1]):
                return one, other
    return None


def _task_ids(report: Mapping[str, Any]) -> set[str]:
    return {task["task_id"] for task in cast("Sequence[Mapping[str, Any]]", report.get("tasks") or ())}
