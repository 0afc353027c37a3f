"""Who is evaluated: what ``--resources`` and ``--against`` name, as settings of the parts that make it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from agl.cli.run_folder import RUNS, SETTINGS_FILE, run_folder
from agl.cli.store.place import literal
from agl.config import Settings, build, load_settings
from agl.errors import ConfigError, NotFoundError, StoreError
from agl.evaluation.report import task_runs_from_json
from agl.launch.evaluation import WEIGHTS, EvaluationRun
from agl.launch.finished_runs import (
    SavedWeights,
    best_prompts,
    kept_iterations,
    newest_weights,
    policy_from_checkpoint,
    weights_of_iteration,
)
from agl.learners.base import Learner
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN, store_to_read
from agl.types import Json, MetricQuery, NamedResources, ProxyLLM, Weights
from agl.types.record import Record

log = logging.getLogger(__name__)

BASE, LATEST = "base", "latest"
REPORT_FILE = "evaluation.json"
EVALUATION = f"{EvaluationRun.__module__}.{EvaluationRun.__qualname__}"
POLICIES = "policies"
"""In the folder of an evaluation: policies that were taken out of checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a contestant changes in the settings.

    Args:
        name: for people.
        resources: beside the model, as written in settings; they stand in for those of the same name.
        weights: of the policy; None are the settings' own.
        run_dir: the run that made the weights.
        policy_version: of the weights, where it is known.
    """

    name: str
    resources: Mapping[str, Json] = field(default_factory=dict[str, Json])
    weights: SavedWeights | None = None
    run_dir: Path | None = None
    policy_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An earlier evaluation.

    Args:
        folder: its run's.
        report: on its first contestant, as plain values.
    """

    folder: Path
    report: Mapping[str, Any]


def chosen(spec: str, settings: Settings, *, store: LightningStore | None) -> Choice:
    """Return what ``base``, ``latest``, a run, or the id of resources stands for.

    Args:
        spec: one of these.
        settings: of the evaluation.
        store: served elsewhere, where ids and the latest run are looked for; None is the folders under ``runs/``.

    Raises:
        ConfigError: there is no such run or id, or what it names is gone.
    """
    if spec == BASE:
        return Choice(name=BASE)
    name = str(settings.values.get("name"))
    if spec == LATEST and store is None:
        newest = newest_run(name)
        if newest is None:
            raise ConfigError(
                f"--resources latest: {RUNS.resolve()} has no run of {name} with a policy or prompts; train one"
                f" with agl train, name a run's folder, or take --resources {BASE}"
            )
        return choice_from_run(newest)
    folder = run_folder(spec)
    if folder is not None:
        return choice_from_run(folder)
    if store is not None:
        return asyncio.run(_from_served(spec, name, store))
    return _from_folders(spec)


def newest_run(name: str) -> Path | None:
    """Return the folder of the newest training run of that name that left something to evaluate, None without one."""
    files = sorted(RUNS.glob(f"*/{SETTINGS_FILE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files:
        written = _written(file.parent)
        if written.get("_target_") == EVALUATION or written.get("name") != name:
            continue
        if newest_weights(file.parent) is not None or best_prompts(file.parent):
            return file.parent
    return None


def choice_from_run(folder: Path) -> Choice:
    """Return the contestant that a training run made: its newest weights, and its prompts with the best in place.

    Raises:
        ConfigError: it made neither.
    """
    if (folder / REPORT_FILE).is_file() or _written(folder).get("_target_") == EVALUATION:
        raise ConfigError(
            f"{folder} is an evaluation: it can be compared with (--against {folder}); to evaluate, name the run"
            " that trained"
        )
    weights, prompts = newest_weights(folder), best_prompts(folder)
    if weights is None and not prompts:
        raise ConfigError(
            f"{folder} has nothing to evaluate: no policy/, no checkpoint and no prompts/best.json; go on with it"
            f" (agl train --resume {folder}), or take --resources {BASE}"
        )
    resources = cast("dict[str, Json]", _written(folder).get("resources") or {})
    best: dict[str, Json] = {name: _literals(value) for name, value in prompts.items()}
    return Choice(name=str(folder), resources={**resources, **best}, weights=weights, run_dir=folder)


def recorded(spec: str) -> Recorded | None:
    """Return the earlier evaluation that is meant, None where it is something else.

    Raises:
        ConfigError: an evaluation that has not ended.
    """
    folder = run_folder(spec)
    if folder is None or _written(folder).get("_target_") != EVALUATION:
        return None
    file = folder / REPORT_FILE
    try:
        report = cast("Mapping[str, Any]", json.loads(file.read_text(encoding="utf-8")))
        found = cast("Mapping[str, Any]", report["evaluated"])
        task_runs_from_json(found["tasks"])
        return Recorded(folder=folder, report=found)
    except FileNotFoundError as error:
        raise ConfigError(
            f"--against {spec}: that evaluation has not ended; go on with it: agl eval --resume {folder}"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--against {spec}: {file} is damaged: {error}; evaluate it again") from error


def with_choice(settings: Settings, choice: Choice) -> Settings:
    """Return the settings with what the contestant changes in them.

    Raises:
        ConfigError: it has weights, and ``inference`` serves another model; or they cannot be read.
    """
    own = cast("Mapping[str, Json]", settings.raw.get("resources") or {})
    changed = settings.with_values(resources={**own, **choice.resources})
    if choice.weights is None:
        return changed
    policy = settings.raw.get("policy")
    inference = cast("Mapping[str, Json]", changed.values.get("inference") or {})
    if not isinstance(policy, Mapping) or not inference.get("policy"):
        raise ConfigError(
            f"{choice.name} has weights of its own, and inference serves another model: leave inference=... out, or"
            f" take --resources {BASE}"
        )
    folder = choice.weights.folder
    if choice.weights.is_checkpoint:
        folder = _policy_of_checkpoint(choice, Path(str(settings.values["run_dir"])))
    return changed.with_values(policy={**policy, "path": literal(str(folder)), "lora": None})


def _policy_of_checkpoint(choice: Choice, run_dir: Path) -> Path:
    """Write a checkpoint's policy into the evaluation's folder, by the learner of the run that saved it."""
    assert choice.weights is not None
    assert choice.run_dir is not None
    checkpoint = choice.weights.folder
    folder = run_dir / POLICIES / f"{choice.run_dir.resolve().name}-{checkpoint.name}"
    settings = load_settings(choice.run_dir / SETTINGS_FILE).with_values(run_dir=str(choice.run_dir))
    learner = build(settings, Learner, "learner")  # type: ignore[type-abstract]
    asyncio.run(policy_from_checkpoint(learner, checkpoint, folder))
    return folder


def _written(folder: Path) -> Mapping[str, Any]:
    """The settings of a run as they were written down."""
    file = folder / SETTINGS_FILE
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _literals(value: Json) -> Json:
    """The value with no text in it that settings would take for a reference."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Json]", value).items()
        return {name: _literals(one) for name, one in items}
    if isinstance(value, list):
        return [_literals(one) for one in cast("list[Json]", value)]
    return literal(value)


async def _from_served(spec: str, name: str, store: LightningStore) -> Choice:
    async with store:
        if spec == LATEST:
            found = await _latest_of(name, store)
            if found is None:
                raise ConfigError(
                    f"--resources latest: the store has no training run {name} with resources; take --resources {BASE}"
                )
        else:
            try:
                found = await store.get_resources_by_id(spec)
            except NotFoundError as error:
                raise ConfigError(_unknown(spec, store.location)) from error
        return await choice_from_version(found, store, RUNS / str(found.run_id))


async def _latest_of(name: str, store: LightningStore) -> NamedResources | None:
    from agl.store.paging import iter_runs
    from agl.types import RunQuery

    async for run in iter_runs(store, RunQuery(name=name, order="desc")):
        if run.command == "train":
            latest = await store.get_latest_resources(run_id=run.run_id)
            if latest is not None:
                return latest
    return None


def _from_folders(spec: str) -> Choice:
    for file in _stores(spec):
        store = store_to_read(str(file))
        choice = asyncio.run(_found_in(spec, store, file.parent))
        if choice is not None:
            return choice
    raise ConfigError(_unknown(spec, str(RUNS.resolve())))


def _stores(spec: str) -> Iterator[Path]:
    """The stores of the runs here, first of those whose name begins the id, then the newest first."""
    files = sorted(RUNS.glob(f"*/{FILE_IN_RUN}"), key=lambda file: file.stat().st_mtime, reverse=True)
    yield from sorted(files, key=lambda file: not spec.startswith(f"{file.parent.name}-"))


async def _found_in(spec: str, store: LightningStore, folder: Path) -> Choice | None:
    try:
        async with store:
            found = await store.get_resources_by_id(spec)
            return await choice_from_version(found, store, folder)
    except NotFoundError:
        return None
    except StoreError as error:  # of another version of agl, or just being made
        log.warning("%s is passed over: %s", folder, error)
        return None


def _unknown(spec: str, where: str) -> str:
    return (
        f"there is no run {spec} and no resources of that id in {where}: name a run's folder, an id, {LATEST} or"
        f" {BASE}"
    )


async def choice_from_version(found: NamedResources, store: LightningStore, folder: Path) -> Choice:
    """The contestant that a version of resources describes."""
    resources: dict[str, Json] = {}
    weights: SavedWeights | None = None
    version: int | None = None
    for name, value in found.resources.items():
        if isinstance(value, Weights) and name == WEIGHTS:
            weights, version = _weights_at(value, found.resources_id), value.policy_version
        elif isinstance(value, ProxyLLM):
            version = version or value.policy_version
        else:
            plain = value.model_dump(mode="json") if isinstance(value, Record) else value
            resources[name] = _literals(plain)
    if version and weights is None:
        weights = await _weights_of_version(found, version, store, folder)
    return Choice(
        name=found.resources_id,
        resources=resources,
        weights=weights,
        run_dir=folder,
        policy_version=version,
    )


def _weights_at(value: Weights, resources_id: str) -> SavedWeights:
    folder = Path(value.path)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"resources {resources_id} name the weights in {folder}, and these are gone")
    return SavedWeights(folder=folder, is_checkpoint=False)


async def _weights_of_version(
    found: NamedResources, version: int, store: LightningStore, folder: Path
) -> SavedWeights:
    """Where the run keeps that version of its policy.

    Raises:
        ConfigError: it does not.
    """
    what = f"resources {found.resources_id} name version {version} of the policy of run {found.run_id}"
    if not folder.is_dir():  # noqa: ASYNC240 - nobody else is served in the meantime
        raise ConfigError(f"{what}, and its folder {folder} is not here: evaluate where it is")
    points = (
        await store.query_metrics(MetricQuery(run_id=str(found.run_id), names=("policy/version",)))
    ).items
    versions = {point.step: int(point.value) for point in points}
    last = max(versions, default=0)
    for iteration in sorted((step for step, of in versions.items() if of == version), reverse=True):
        weights = weights_of_iteration(folder, iteration, is_last=versions[last] == version)
        if weights is not None:
            return weights
    kept = sorted({versions[step] for step in kept_iterations(folder) if step in versions} | {0})
    raise ConfigError(
        f"{what}, and its weights are gone: the run keeps versions {', '.join(map(str, kept))} and the last,"
        f" {versions.get(last, 0)} (algorithm.keep_checkpoints says how many)"
    )
