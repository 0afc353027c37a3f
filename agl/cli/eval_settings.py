"""The settings of ``agl eval``: those of a training run, of a recipe or of a run's folder, and how it is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from agl.cli.contestants import BASE, EVALUATION, LATEST, newest_run
from agl.cli.run_folder import SETTINGS_FILE, run_folder, to_resume, unused
from agl.cli.store.place import literal
from agl.cli.train import with_store_url
from agl.config import Settings, compose, load_settings
from agl.config.settings import MISSING, leaves
from agl.errors import ConfigError
from agl.types import Json

KEYS = (
    "agent",
    "data",
    "store",
    "runner",
    "proxy",
    "inference",
    "grader",
    "hooks",
    "resources",
    "store_server",
)
OWN_KEYS = ("evaluation", "run_dir", "name", "seed", "trusted")
NAMING = ("policy", "inference", "resources")
"""An override of one of these says who is evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of ``agl eval`` beside its overrides."""

    resources: str | None = None
    against: str | None = None
    mode: str | None = None
    limit: int | None = None
    repeats: int | None = None
    as_json: bool = False
    fail_under: float | None = None
    store_url: str | None = None
    run_dir: Path | None = None
    resume: str | None = None
    config_dir: Path | None = None
    cfg: bool = False

    def as_overrides(self) -> list[str]:
        """Return those that stand for a setting."""
        given = {"mode": self.mode, "limit": self.limit, "repeats": self.repeats}
        return [f"evaluation.{name}={value}" for name, value in given.items() if value is not None]


def eval_settings(overrides: Sequence[str], options: Options) -> Settings:
    """Return the settings of all parts, of which ``evaluation`` says who is evaluated.

    Raises:
        ConfigError: a mistake in the overrides or options.
    """
    overrides = [*overrides, *options.as_overrides()]
    if options.resume is not None:
        return _resumed(overrides, options)
    settings = _new(overrides, options)
    if options.store_url is not None:
        settings = with_store_url(settings, options.store_url)
    if options.run_dir is not None:
        settings = settings.with_values(run_dir=str(options.run_dir))
    elif "${now" in str(settings.raw.get("run_dir")):
        settings = settings.with_values(run_dir=str(unused(Path(str(settings.values["run_dir"])))))
    evaluation = cast("Mapping[str, Json]", settings.values["evaluation"])
    resources = options.resources or cast("str | None", evaluation.get("resources"))
    against = options.against or cast("str | None", evaluation.get("against"))
    if resources is None:
        resources = _usual(settings, overrides, at_url=options.store_url is not None)
    if resources == LATEST and options.store_url is None:
        resources = str(
            newest_run(str(settings.values.get("name"))) or LATEST
        )  # a resumed run means the same one
    named = {"resources": literal(resources), "against": literal(against)}
    return settings.with_values(_target_=EVALUATION, evaluation={**_plain(evaluation), **named})


def _resumed(overrides: Sequence[str], options: Options) -> Settings:
    given = {
        "--run-dir": options.run_dir,
        "--config-dir": options.config_dir,
        "--resources": options.resources,
        "--against": options.against,
    }
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"--resume starts from the evaluation's own folder and settings; leave {name} out"
            )
    folder = to_resume(str(options.resume), target=EVALUATION)
    settings = load_settings(folder / SETTINGS_FILE, overrides).with_values(run_dir=str(folder))
    return settings if options.store_url is None else with_store_url(settings, options.store_url)


def _new(overrides: Sequence[str], options: Options) -> Settings:
    at_url = [] if options.store_url is None else ["store=client"]
    folder = run_folder(options.resources)
    if folder is None or any(one.lstrip("+").startswith("recipe=") for one in overrides):
        return compose("eval", [*at_url, *overrides], config_dir=options.config_dir)
    return _of_run(folder, overrides, options, at_url)


def _of_run(folder: Path, overrides: Sequence[str], options: Options, at_url: Sequence[str]) -> Settings:
    """Without a recipe a run is evaluated with what it was made of."""
    own = [one for one in overrides if one.lstrip("+").startswith("evaluation.")]
    others = [one for one in overrides if one not in own]
    run = load_settings(folder / SETTINGS_FILE, others)
    fresh = compose("eval", [*at_url, *own], config_dir=options.config_dir)
    changes = {name: fresh.raw[name] for name in ("evaluation", "run_dir", *(["store"] if at_url else []))}
    return run.with_values(**changes)


def _usual(settings: Settings, overrides: Sequence[str], *, at_url: bool) -> str:
    """Who is evaluated where nobody says so: the newest run of the recipe, unless an override names a model."""
    keys = [one.lstrip("+~").partition("=")[0].partition(".")[0] for one in overrides]
    if at_url or any(key in NAMING for key in keys):
        return BASE
    newest = newest_run(str(settings.values.get("name")))
    return BASE if newest is None else str(newest)


def parts_of(settings: Settings) -> Settings:
    """Return the root keys that an evaluation is built of, without a model that nobody named."""
    has_model = not any(value == MISSING for _, value in leaves(settings.values.get("inference")))
    keys = [key for key in KEYS if key != "inference" or has_model]
    kept = [key for key in (*keys, *OWN_KEYS) if key in settings.raw]
    return Settings(
        source=settings.source,
        raw={"_target_": EVALUATION, **{key: settings.raw[key] for key in kept}},
        values={"_target_": EVALUATION, **{key: settings.values[key] for key in kept}},
    )


def _plain(values: Mapping[str, Json]) -> dict[str, Json]:
    """Resolved values as they are written down: what refers to the algorithm stays as it is now."""
    return {name: literal(value) for name, value in values.items()}
