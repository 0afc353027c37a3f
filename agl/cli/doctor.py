"""agl doctor: carry out the checks and print a line for each, with what to do below it."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import typer

from agl.agents.base import Agent
from agl.cli.progress import Progress
from agl.cli.run_folder import RUNS
from agl.cli.text import plain, say, say_json, terminal_width, wrapped
from agl.cli.train import CLIENT, tune_process
from agl.config import Settings, build, check, compose
from agl.config.settings import MISSING, leaves
from agl.data import TaskData
from agl.doctor import Check, Finding, diagnose
from agl.doctor.accelerator import accelerator
from agl.doctor.call import EchoEngine, call
from agl.doctor.findings import fine
from agl.doctor.machine import clock, disk, memory, open_files, ports, processors, python, system
from agl.doctor.packages import packages
from agl.doctor.policy import tokenizer
from agl.doctor.program import agent
from agl.doctor.records import scratch_store, served_store
from agl.doctor.tasks import data
from agl.errors import ConfigError
from agl.inference.base import Engine
from agl.launch.stopping import run_interruptibly
from agl.proxy import LLMProxy
from agl.trainer import Trainer
from agl.types import Json, Policy, Resource

LABEL_WIDTH = 20
"""Of the columns for status and subject."""
SHORT_SECONDS = 20.0
"""For checks that need neither a model nor the user's code."""
SETTINGS_FIX = "change the setting that the message names; agl train ... --cfg prints all of them"


def main(
    overrides: Sequence[str],
    *,
    store_url: str | None,
    timeout_seconds: float,
    as_json: bool,
    config_dir: Path | None,
) -> None:
    """Look at the machine, and with overrides at what they compose; exit with 1 where something fails.

    Raises:
        ConfigError: the options are wrong.
    """
    if not timeout_seconds > 0:
        raise ConfigError(f"--timeout {timeout_seconds:g}: a number of seconds above 0")
    tune_process()
    settings = _composed(overrides, config_dir) if overrides or config_dir else None
    checks = [*machine_checks(timeout_seconds), store_check(store_url, settings)]
    checks += [_echo()] if settings is None else recipe_checks(settings, timeout_seconds)
    out, width = sys.stdout, terminal_width()

    with _given_up_unsaid(), Progress(sys.stderr, "looking") as progress:

        def show(finding: Finding) -> None:
            if not as_json:
                progress.draw("")
                say(lines_of(finding, width=width), out)
                out.flush()
                progress.draw("looking ...")

        progress.draw("looking ...")
        found = run_interruptibly(lambda: diagnose(checks, on_finding=show))
    _end(found, as_json=as_json, width=width)


@contextmanager
def _given_up_unsaid() -> Generator[None]:
    """Keep quiet about checks that were given up and go on: their findings say so."""
    log = logging.getLogger("agl.agents.threads")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _end(found: Sequence[Finding], *, as_json: bool, width: int) -> None:
    counts = Counter(finding.status for finding in found)
    if as_json:
        say_json({"ok": not counts["fail"], "findings": [asdict(finding) for finding in found]})
    else:
        summary = f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} to mend"
        say(["", *wrapped(summary, width=width)])
    if counts["fail"]:
        raise typer.Exit(1)


def lines_of(finding: Finding, *, width: int) -> list[str]:
    """Return the lines of a finding: status, subject and detail, and below it what to do."""
    head = f"{finding.status:4}  {plain(finding.what)}"
    lines = wrapped(finding.detail, width=width - LABEL_WIDTH) if width >= 3 * LABEL_WIDTH else None
    if lines is None:  # a narrow terminal: the detail has lines of its own
        lines = [head, *wrapped(finding.detail, width=width, indent="      ")]
    else:
        lines = [f"{head:{LABEL_WIDTH}}{lines[0]}", *(f"{'':{LABEL_WIDTH}}{line}" for line in lines[1:])]
    indent = LABEL_WIDTH if width >= 3 * LABEL_WIDTH else 6
    if finding.fix is not None:
        fix = wrapped(finding.fix, width=width - indent - 2)
        lines += [f"{'':{indent}}{'  ' if number else '> '}{line}" for number, line in enumerate(fix)]
    return lines


def machine_checks(seconds: float) -> list[Check]:
    """Return what is looked at whatever the recipe."""
    return [
        Check(name="python", look=python),
        Check(name="system", look=system),
        Check(name="packages", look=packages),
        Check(name="torch", look=lambda: accelerator(seconds), seconds=seconds + 5.0),
        Check(name="processors", look=processors),
        Check(name="memory", look=memory),
        Check(name="disk", look=lambda: disk(RUNS)),
        Check(name="clock", look=clock),
        Check(name="ports", look=ports),
        Check(name="open files", look=open_files),
    ]


def store_check(url: str | None, settings: Settings | ConfigError | None) -> Check:
    """Return how the store is looked at: the one served at the URL, or where the settings say, else one kept here."""
    token = os.environ.get("AGL_STORE_TOKEN")
    if url is None and isinstance(settings, Settings):
        node = cast("Mapping[str, Json]", settings.values.get("store") or {})
        if node.get("_target_") == CLIENT and node.get("url") != MISSING:
            url, token = str(node["url"]), cast("str | None", node.get("token"))
    if url is None:
        return Check(name="store", look=partial(scratch_store, RUNS), seconds=SHORT_SECONDS)
    return Check(
        name="store",
        look=partial(served_store, url, token),
        seconds=2 * SHORT_SECONDS,
        fix="give the URL that `agl store` prints",
    )


def _echo() -> Check:
    return Check(
        name="call",
        look=lambda: call(LLMProxy(), EchoEngine(), model=None),
        seconds=SHORT_SECONDS,
    )


def _composed(overrides: Sequence[str], config_dir: Path | None) -> Settings | ConfigError:
    """The settings, or why there are none."""
    try:
        return compose("train", overrides, config_dir=config_dir)
    except ConfigError as error:
        return error


def recipe_checks(settings: Settings | ConfigError, seconds: float) -> list[Check]:
    """Return what is looked at of a recipe; where its settings did not compose, that alone."""
    if isinstance(settings, ConfigError):
        return [Check(name="settings", look=partial(_raise, settings), fix=SETTINGS_FIX)]
    checked = partial(Check, seconds=seconds, fix=SETTINGS_FIX)
    checks = [checked(name="settings", look=lambda: _settings(settings))]
    if _is_given(settings, "data"):
        checks.append(checked(name="data", look=lambda: _data(settings)))
    if _is_given(settings, "agent"):
        checks.append(checked(name="agent", look=partial(_agent, settings)))
    if _is_given(settings, "policy"):
        checks.append(checked(name="tokenizer", look=lambda: tokenizer(build(settings, Policy, "policy"))))
    if _is_given(settings, "inference") or _is_given(settings, "policy"):
        checks.append(checked(name="call", look=partial(_call, settings)))
    return checks


def _raise(error: ConfigError) -> list[Finding]:
    raise error


def _is_given(settings: Settings, key: str) -> bool:
    """Whether there is such a node, with all its values."""
    node = settings.values.get(key)
    return node is not None and not any(value == MISSING for _, value in leaves(node))


def _settings(settings: Settings) -> list[Finding]:
    check(settings)
    trainer = build(settings, Trainer)
    words = f"{trainer.name}: {type(trainer.algorithm).__name__}"
    if trainer.learner is not None:
        words += f" on {type(trainer.learner).__name__}"
    return [fine("settings", f"{words}, served by {type(trainer.inference).__name__}")]


def _data(settings: Settings) -> list[Finding]:
    return data(build(settings, TaskData, "data"), needs_train=_trains(settings))  # type: ignore[type-abstract]


async def _agent(settings: Settings) -> list[Finding]:
    built = build(settings, Agent, "agent")  # type: ignore[type-abstract]
    return await agent(built, cast("Mapping[str, Resource]", settings.values.get("resources") or {}))


async def _call(settings: Settings) -> list[Finding]:
    proxy = build(settings, LLMProxy, "proxy") if _is_given(settings, "proxy") else LLMProxy()
    if _is_given(settings, "inference"):
        engine: Engine = build(settings, Engine, "inference")  # type: ignore[type-abstract]
    else:
        from agl.inference.transformers import TransformersEngine

        engine = TransformersEngine(policy=build(settings, Policy, "policy"))
    return await call(proxy, engine, needs_ids=_trains(settings))


def _trains(settings: Settings) -> bool:
    """Whether the algorithm moves weights."""
    algorithm: Any = build(settings, object, "algorithm")
    return bool(getattr(algorithm, "needs_learner", False))
