"""agl run: join a served store as a runner, or run some tasks here and print what came out."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

from agl.cli.store.place import literal
from agl.cli.task_table import TERMINAL_WIDTH, lines_of
from agl.cli.train import tune_process, with_store_url
from agl.config import Settings, build, compose, masked, settings_text
from agl.config.settings import MISSING, leaves
from agl.data import TaskData
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import first_cause
from agl.launch.runner import Joined, StandaloneRunner
from agl.launch.stopping import run_interruptibly
from agl.launch.tasks import TaskRun
from agl.types import Json, Mode, RolloutConfig

FEW = 10
"""Tasks, unless told otherwise."""
JOINING = ("agent", "grader", "hooks", "runner", "store")
RUNNING = (*JOINING, "inference", "proxy", "resources", "store_server", "name", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of ``agl run`` beside its overrides."""

    store_url: str | None = None
    token: str | None = field(default=None, repr=False)
    run_id: str | None = None
    processes: int | None = None
    max_concurrency: int | None = None
    mode: str | None = None
    limit: int = FEW
    tasks: Sequence[str] = ()
    timeout_seconds: float = 300.0
    config_dir: Path | None = None
    cfg: bool = False


def main(overrides: Sequence[str], options: Options) -> None:
    """Join a store until SIGTERM (drain, exit code 0) or Ctrl-C (130); or run tasks and print the results.

    Raises:
        ConfigError: a mistake in the settings; nothing was started.
        RunStoppedError: every task failed, or runner processes die again and again.
    """
    if options.store_url is not None:
        _join(overrides, options)
    else:
        _run(overrides, options)


def _join(overrides: Sequence[str], options: Options) -> None:
    if options.tasks or options.mode is not None:
        raise ConfigError("--task and --mode are for a run without --store-url: a store has its own tasks")
    settings = run_settings(overrides, options)
    if options.cfg:
        print(settings_text(settings), end="")
        return
    runner = build(settings, StandaloneRunner)
    _log_to_terminal()
    run_interruptibly(lambda: runner.serve(on_joined=_say_joined, note=_say))


def _say(line: str) -> None:
    print(f"agl runner: {line}", flush=True)


def _say_joined(joined: Joined) -> None:
    run = joined.run_id or "any"
    lines = [
        f"agl runner joined {joined.records}",
        f"  identity {joined.identity}",
        f"  agent    {joined.agent}",
        f"  run      {run}",
    ]
    print("\n".join(lines), flush=True)


def _run(overrides: Sequence[str], options: Options) -> None:
    if options.token is not None or options.run_id is not None:
        raise ConfigError("--token and --run-id are for joining a store: give --store-url URL, too")
    tune_process()
    composed = _composed(overrides, options)
    settings = run_settings(overrides, options, composed)
    if options.cfg:
        print(settings_text(settings), end="")
        return
    task_run = build(settings, TaskRun)
    mode, tasks, total = _tasks(composed, options)
    _log_to_terminal()
    of_all = "" if total == len(tasks) else f" of {total} (--limit 0 takes all)"
    noun = "task" if len(tasks) == 1 else "tasks"
    print(f"agl run: {task_run.agent.name} on {len(tasks)}{of_all} {mode} {noun}", flush=True)
    results = run_interruptibly(
        lambda: task_run.run(
            tasks,
            mode=mode,
            config=RolloutConfig(
                timeout_seconds=options.timeout_seconds,
                unresponsive_seconds=60.0,
                max_attempts=3,
                retry_on=("unresponsive",),
            ),
            settings=masked(settings),
            on_progress=_show_progress,
        )
    )
    width = shutil.get_terminal_size((TERMINAL_WIDTH, 24)).columns
    print("\n".join(lines_of(results, width=width)), flush=True)
    rollouts = [result.rollout for result in results]
    if all(rollout.status != "succeeded" for rollout in rollouts):
        cause = textwrap.shorten(first_cause(rollouts), 200, placeholder="...")
        what = (
            "the task failed" if len(rollouts) == 1 else f"none of {len(rollouts)} tasks succeeded; the first"
        )
        raise RunStoppedError(f"{what}: {cause}")


def run_settings(overrides: Sequence[str], options: Options, composed: Settings | None = None) -> Settings:
    """Return the settings of what the options ask for: the nodes of ``agl train`` that it needs, and no others.

    Raises:
        ConfigError: a mistake in the overrides.
    """
    composed = composed or _composed(overrides, options)
    if options.store_url is None:
        runs_model = not any(value == MISSING for _, value in leaves(composed.values.get("inference")))
        keys = [key for key in RUNNING if key != "inference" or runs_model]
        return _part(composed, TaskRun, keys)
    composed = with_store_url(composed, options.store_url)
    changes: dict[str, Json] = {"run_id": literal(options.run_id)}
    if options.token is not None:
        store = cast("Mapping[str, Json]", composed.raw["store"])
        changes["store"] = {**store, "token": literal(options.token)}
    return _part(composed.with_values(**changes), StandaloneRunner, [*JOINING, "run_id"])


def _composed(overrides: Sequence[str], options: Options) -> Settings:
    """The settings of ``agl train``, with what the options say about store and runner."""
    first: list[str] = []
    if options.store_url is not None:
        first.append("store=client")
    elif not any(override.startswith(("store=", "store.")) for override in overrides):
        first.append("store=memory")
    last: list[str] = []
    if options.processes is not None:
        first.append("runner=processes")
        last.append(f"runner.processes={options.processes}")
    elif not any(override.startswith("runner=") for override in overrides):
        # one child by default: when it dies with its agent another one takes its place
        first += (
            ["runner=inline"] if options.store_url is None else ["runner=processes", "runner.processes=1"]
        )
    if options.max_concurrency is not None:
        last.append(f"runner.max_concurrency={options.max_concurrency}")
    return compose("train", [*first, *overrides, *last], config_dir=options.config_dir)


def _part(composed: Settings, target: type, keys: Sequence[str]) -> Settings:
    """These root keys alone, for another target."""
    named = f"{target.__module__}.{target.__qualname__}"
    kept = [key for key in (*keys, "trusted") if key in composed.raw]
    return Settings(
        source=composed.source,
        raw={"_target_": named, **{key: composed.raw[key] for key in kept}},
        values={"_target_": named, **{key: composed.values[key] for key in kept}},
    )


def _tasks(composed: Settings, options: Options) -> tuple[Mode, list[Json], int]:
    """Return what part of the data is run, the tasks, and how many there are."""
    mode = options.mode or "val"
    if mode not in get_args(Mode):
        raise ConfigError(f"--mode {mode}: one of {', '.join(get_args(Mode))}")
    if options.limit < 0:
        raise ConfigError(f"--limit {options.limit}: a number of tasks, or 0 for all")
    chosen = cast("Mode", mode)
    if options.tasks:
        given = [_task(text) for text in options.tasks]
        return chosen, given, len(given)
    if ("function", MISSING) in leaves(composed.values.get("data")):
        raise ConfigError(
            "there are no tasks: give --task JSON, or data=jsonl data.train=FILE, or a recipe (+recipe=NAME)"
        )
    data = build(_part(composed, TaskRun, ["data"]), TaskData, "data")  # type: ignore[type-abstract]
    found = data.load(chosen)
    if not found and options.mode is None:
        chosen = "train"
        found = data.load(chosen)
    if not found:
        raise ConfigError(f"data: there are no {chosen} tasks")
    return chosen, found[: options.limit or None], len(found)


def _task(text: str) -> Json:
    """JSON, or text as it is; in UTF-8 whatever the locale says."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(
            f"\r{done}/{total}" + ("\r" + " " * 20 + "\r" if done == total else ""),
            end="",
            file=sys.stderr,
            flush=True,
        )


def _log_to_terminal() -> None:
    """Warnings go to standard error, and so does what runner processes write."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    output = logging.getLogger("agl.runners.output")
    output.setLevel(logging.INFO)
    output.propagate = False
    plain = logging.StreamHandler()
    plain.setFormatter(logging.Formatter("%(message)s"))
    output.addHandler(plain)
