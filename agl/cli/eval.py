"""agl eval: measure a policy or prompts on held-out tasks, and compare them with others."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from agl.cli.arguments import refuse_both
from agl.cli.contestants import BASE, REPORT_FILE, Choice, Recorded, chosen, recorded, with_choice
from agl.cli.eval_report import comparison_lines, places, report_lines
from agl.cli.eval_settings import Options, eval_settings, parts_of
from agl.cli.progress import Progress
from agl.cli.records import records_to_change
from agl.cli.run_folder import ENDING_FILE, SETTINGS_FILE, abandon, claim, locked, logged
from agl.cli.run_state import settings_of
from agl.cli.text import say, say_json
from agl.cli.train import tune_process
from agl.config import Settings, build, check, masked, save_settings, settings_text
from agl.errors import AglError, ConfigError, MissingExtraError
from agl.evaluation.comparison import Comparison, compare
from agl.evaluation.report import task_runs_from_json
from agl.launch.evaluation import Contestant, EvaluationRun, digest_of, task_ids
from agl.launch.interpreter import tune_for_serving
from agl.launch.stopping import run_interruptibly
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN
from agl.types import Json, Mode, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an evaluation found, as plain values.

    Args:
        folder: of its run.
        mode: of the tasks.
        evaluated: the report on the contestant.
        against: the report on the other one, if there is one.
        comparison: of the two.
        against_folder: of the run of the other one, where that is another run.
    """

    folder: Path
    mode: Mode
    evaluated: Mapping[str, Any]
    against: Mapping[str, Any] | None = None
    comparison: Comparison | None = None
    against_folder: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "run_id": self.folder.resolve().name,
            "run_dir": str(self.folder),
            "mode": self.mode,
            "evaluated": self.evaluated,
            "against": self.against,
            "comparison": None if self.comparison is None else self.comparison.as_json(),
        }

    def lines(self) -> list[str]:
        """Return the report for people."""
        lines = report_lines(self.evaluated, mode=self.mode)
        if self.against is not None and self.comparison is not None:
            lines += ["", *report_lines(self.against, mode=self.mode), ""]
            names = (self.evaluated["contestant"], self.against["contestant"])
            shown_by = (shown_from(self.folder), shown_from(self.against_folder or self.folder))
            lines += comparison_lines(self.comparison, *names, shown_by=shown_by)
        return [*lines, *places(self.folder, REPORT_FILE)]


def shown_from(folder: Path) -> str:
    """Return the options by which ``agl show`` finds the records of a run; nothing where nobody knows their place."""
    if (folder / FILE_IN_RUN).is_file():
        return f"--run-dir {shlex.quote(str(folder))}"
    store = settings_of(folder).get("store")
    url = cast("Mapping[str, Any]", store).get("url") if isinstance(store, Mapping) else None
    return f"--store-url {shlex.quote(url)}" if isinstance(url, str) and "://" in url else ""


def main(overrides: Sequence[str], options: Options) -> None:
    """Evaluate, print what was found, and fail where the mean reward is below ``fail_under``.

    Raises:
        ConfigError: a mistake in the settings; nothing was started.
        RunStoppedError: too many rollouts gave no reward.
        AglError: the mean reward is too low.
    """
    if options.fail_under is not None and math.isnan(options.fail_under):
        raise ConfigError("--fail-under nan: the least mean reward, a number")
    refuse_both(cfg=options.cfg, as_json=options.as_json)
    tune_process()
    settings = eval_settings(overrides, options)
    if options.cfg:
        print(settings_text(settings), end="")
        return
    found = evaluated(settings, options)
    if options.as_json:
        say_json(found.as_json())
    else:
        say(found.lines())
    refuse_low(found.evaluated["reward"]["mean"], options.fail_under)


def evaluated(settings: Settings, options: Options) -> Found:
    """Evaluate as the settings say, with progress on standard error."""
    with redirect_stdout(sys.stderr), Progress(sys.stderr, "evaluating") as progress:
        # what an agent prints goes to standard error: the report has standard output for itself
        progress.draw("starting")  # libraries and weights take their time
        return _found(settings, options, progress)


def refuse_low(mean: float | None, fail_under: float | None) -> None:
    """Raise an AglError where the mean reward is below the limit, or there is none."""
    if fail_under is None or (mean is not None and mean >= fail_under):
        return
    shown = "there is no reward" if mean is None else f"the mean reward {mean:.4g} is below it"
    raise AglError(f"--fail-under {fail_under:g}: {shown}")


def _found(settings: Settings, options: Options, progress: Progress) -> Found:
    """Resolve who is evaluated, run it in the evaluation's folder, and write down what came out."""
    resume = options.resume is not None
    evaluation = cast("Mapping[str, Any]", settings.values["evaluation"])
    folder = Path(str(settings.values["run_dir"]))
    earlier = None if evaluation["against"] is None else recorded(evaluation["against"])
    choices = [_choice(str(evaluation["resources"]), settings, options)]
    if evaluation["against"] is not None and earlier is None:
        choices.append(_choice(str(evaluation["against"]), settings, options))
    if all(choice.weights is None or not choice.weights.is_checkpoint for choice in choices):
        for choice in choices:  # every mistake before the folder is made
            check(parts_of(with_choice(settings, choice)))
    if options.store_url is not None:
        asyncio.run(_reached(options.store_url))
    before = frozenset[str]() if resume else claim(folder)
    try:
        with locked(folder), logged(folder):
            save_settings(settings, folder / SETTINGS_FILE)
            tune_for_serving()  # the calls of proxy and store come through this process
            found = _measured(settings, choices, earlier, progress, resume=resume)
            text = json.dumps(found.as_json(), ensure_ascii=False, indent=1)
            (folder / REPORT_FILE).write_text(f"{text}\n", encoding="utf-8")
            (folder / ENDING_FILE).write_text("\n".join(found.lines()) + "\n", encoding="utf-8")
            return found
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"go on with: agl eval --resume {folder}")
        raise
    except (ConfigError, MissingExtraError):
        if not resume:
            abandon(folder, before=before)
        raise


async def _reached(store_url: str) -> None:
    """Find out whether the store answers and takes the token, before anything is begun."""
    async with records_to_change(store_url, None):
        return


def _choice(spec: str, settings: Settings, options: Options) -> Choice:
    store = None
    if options.store_url is not None:
        store = build(settings, LightningStore, "store")  # type: ignore[type-abstract]
    return chosen(spec, settings, store=store)


def _measured(
    settings: Settings,
    choices: Sequence[Choice],
    earlier: Recorded | None,
    progress: Progress,
    *,
    resume: bool,
) -> Found:
    made = [parts_of(with_choice(settings, choice)) for choice in choices]
    runs = [build(parts, EvaluationRun) for parts in made]
    contestants = [
        _contestant(choice, parts, run) for choice, parts, run in zip(choices, made, runs, strict=True)
    ]
    fingerprints = {contestant.fingerprint for contestant in contestants}
    if len(fingerprints) < len(contestants):
        raise ConfigError(
            f"--resources {choices[0].name} and --against {choices[1].name} are the same model and prompts: name"
            " another"
        )
    evaluator = runs[0]
    mode, tasks = evaluator.tasks()
    if earlier is not None:
        _refuse_other_tasks(earlier, task_ids(tasks))
    reports = run_interruptibly(
        lambda: evaluator.run(
            contestants,
            tasks,
            mode=mode,
            resume=resume,
            settings=masked(settings),
            on_wait=progress.waited,
            note=progress.note,
        )
    )
    first = reports[0]
    found = Found(folder=evaluator.run_dir, mode=mode, evaluated=first.as_json())
    if len(reports) == 1 and earlier is None:
        return found
    second = reports[1].as_json() if earlier is None else _renamed(earlier)
    comparison = compare(first.tasks, task_runs_from_json(second["tasks"]), threshold=first.threshold)
    return replace(
        found,
        against=second,
        comparison=comparison,
        against_folder=None if earlier is None else earlier.folder,
    )


def _refuse_other_tasks(earlier: Recorded, ids: Sequence[str]) -> None:
    if not {task["task_id"] for task in earlier.report["tasks"]} & set(ids):
        raise ConfigError(
            f"--against {earlier.folder}: that evaluation has none of these tasks; give both the same data and"
            " --mode, or evaluate its contestant again"
        )


def _renamed(earlier: Recorded) -> dict[str, Any]:
    """An earlier report, named by where it is: two of them may be about ``base``."""
    return {**earlier.report, "contestant": f"{earlier.report['contestant']} in {earlier.folder}"}


def _contestant(choice: Choice, parts: Settings, run: EvaluationRun) -> Contestant:
    shown = masked(parts)
    made_of: Json = [shown.get("inference"), shown.get("resources"), shown.get("proxy")]
    weights = None
    if choice.weights is not None:
        policy = cast("Mapping[str, Any]", cast("Mapping[str, Any]", shown["inference"])["policy"])
        weights = Weights(path=str(policy["path"]), policy_version=choice.policy_version or 0)
    return Contestant(
        name=choice.name if choice.name != BASE else f"{BASE} ({_model(shown)})",
        fingerprint=digest_of([made_of, None if weights is None else weights.policy_version]),
        inference=run.inference,
        resources=run.resources,
        weights=weights,
    )


def _model(shown: Mapping[str, Any]) -> str:
    """What answers under these settings, for people."""
    inference = cast("Mapping[str, Any]", shown.get("inference") or {})
    policy = cast("Mapping[str, Any]", inference.get("policy") or {})
    endpoints = cast(
        "Mapping[str, Any]", cast("Mapping[str, Any]", shown.get("proxy") or {}).get("endpoints") or {}
    )
    return str(policy.get("path") or inference.get("model") or next(iter(endpoints), "no model"))
