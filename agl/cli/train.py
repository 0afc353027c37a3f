"""agl train: compose, check, build and fit; the run's folder holds all of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from agl.cli.interrupts import raised_interrupts
from agl.cli.run_folder import (
    ENDING_FILE,
    SETTINGS_FILE,
    abandon,
    claim,
    locked,
    logged,
    to_resume,
    unused,
)
from agl.cli.store.place import literal
from agl.config import Settings, build, check, compose, load_settings, masked, save_settings, settings_text
from agl.errors import ConfigError, MissingExtraError
from agl.launch.interpreter import SWITCH_SECONDS, tune_for_serving
from agl.launch.roles import ROLE, part_from
from agl.types import Json

CLIENT = "agl.store.client.LightningStoreClient"


def main(
    overrides: Sequence[str],
    *,
    cfg: bool,
    config_dir: Path | None,
    run_dir: Path | None,
    resume: str | None,
    store_url: str | None,
) -> None:
    """Train, or with ``cfg`` only print the settings.

    Raises:
        ConfigError: a mistake in the settings; nothing was started.
    """
    tune_process()
    if part_from().role == "runner":
        raise ConfigError(f"{ROLE}=runner is for scripts: to execute the rollouts of a run, start `agl run`")
    if resume is None:
        at_url = [] if store_url is None else ["store=client"]
        settings = _new(compose("train", [*at_url, *overrides], config_dir=config_dir), run_dir)
    elif run_dir is not None or config_dir is not None:
        raise ConfigError(
            "--resume starts from the run's own folder and settings; leave --run-dir and --config-dir out"
        )
    else:
        settings = _resumed(to_resume(resume), overrides)
    if store_url is not None:
        settings = with_store_url(settings, store_url)
    if cfg:
        print(settings_text(settings), end="")
        return
    check(settings)
    print("\n".join(_train(settings, resume=resume is not None)))


def _new(settings: Settings, run_dir: Path | None) -> Settings:
    """Fix the folder: the one asked for, or a dated one that no other run started in the same second has."""
    if run_dir is not None:
        return settings.with_values(run_dir=str(run_dir))
    if "${now" in str(settings.raw.get("run_dir")):
        return settings.with_values(run_dir=str(unused(Path(str(settings.values["run_dir"])))))
    return settings


def _resumed(folder: Path, overrides: Sequence[str]) -> Settings:
    return load_settings(folder / SETTINGS_FILE, overrides).with_values(run_dir=str(folder))


def with_store_url(settings: Settings, url: str) -> Settings:
    """Return the settings with their client store at that URL.

    Raises:
        ConfigError: the run's records are elsewhere.
    """
    store = cast("Mapping[str, Json]", settings.raw.get("store") or {})
    if store.get("_target_") != CLIENT:
        raise ConfigError("--store-url: this run has its records elsewhere; leave it out, or begin a new run")
    return settings.with_values(store={**store, "url": literal(url)})


def _train(settings: Settings, *, resume: bool) -> list[str]:
    """Run to the end and return the closing report."""
    from agl.trainer import Trainer

    trainer = build(settings, Trainer)
    folder = Path(str(settings.values["run_dir"]))
    before = frozenset[str]() if resume else claim(folder)
    try:
        with locked(folder), logged(folder):
            save_settings(settings, folder / SETTINGS_FILE)
            (folder / ENDING_FILE).unlink(missing_ok=True)
            tune_for_serving()  # the calls of proxy and store come through this process
            with raised_interrupts():
                outcome = trainer.fit(resume=resume, settings=masked(settings))
            lines = [] if outcome is None else outcome.lines()
            (folder / ENDING_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
            return lines
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"go on with: agl train --resume {folder}")
        raise
    except (ConfigError, MissingExtraError):
        if not resume:
            abandon(folder, before=before)
        raise


def tune_process() -> None:
    """Make few cores go far: the event loop and torch's thread share this process.

    OpenMP's threads sleep where they wait; spinning they triple the CPU use of a busy machine (must be set before
    anything imports torch). Torch gives up the interpreter's lock at each operation and gets it back after a switch
    interval; with the loop 90% busy a tenth of the default samples 1.5 times as many tokens (883 and 1,322 a
    second).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.setswitchinterval(SWITCH_SECONDS)
