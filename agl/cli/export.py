"""agl export: take results out of a run, as a file or folder that appears whole or not at all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agl.cli.arguments import refuse_both
from agl.cli.named_records import one_of
from agl.cli.progress import Progress
from agl.cli.records import file_of_records, newest_run_folder, records_to_read
from agl.cli.run_folder import RUNS, SETTINGS_FILE
from agl.cli.text import counted, say, say_json, terminal_width, wrapped
from agl.cli.train import tune_process
from agl.config import build, compose, load_settings, settings_text
from agl.errors import ConfigError
from agl.export.origin import Export, Origin
from agl.export.selection import Exported
from agl.learners.base import Learner
from agl.store.opening import FILE_IN_RUN

KINDS = ("policy", "prompts", "rollouts", "spans", "samples", "sft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of ``agl export`` beside its overrides."""

    out: Path | None = None
    run_dir: str | None = None
    store_url: str | None = None
    force: bool = False
    as_json: bool = False
    config_dir: Path | None = None
    cfg: bool = False


def main(overrides: Sequence[str], options: Options) -> None:
    """Export, and print what was written.

    Raises:
        ConfigError: a mistake in the settings, or no such run.
        AglError: there is nothing to export, or it cannot be written.
    """
    refuse_both(cfg=options.cfg, as_json=options.as_json)
    what = what_of(overrides, options.config_dir)
    settings = compose("export", overrides, config_dir=options.config_dir)
    if options.cfg:
        print(settings_text(settings), end="")
        return
    export = build(settings, Export)  # type: ignore[type-abstract]
    origin = origin_of(export, options)
    path = options.out or export.default_path(origin)
    with redirect_stdout(sys.stderr), Progress(sys.stderr, "exporting") as progress:
        progress.draw("starting")
        if what == "policy":
            tune_process()  # it may load torch
        exported = asyncio.run(export.write(origin, path, force=options.force, on_rollout=heard(progress)))
    report = report_of(what, exported, origin)
    if options.as_json:
        say_json(report)
    else:
        say(lines_of(report, width=terminal_width()))


def heard(progress: Progress) -> Callable[[int], None]:
    """Return what shows how many rollouts have been read."""
    return lambda done: progress.tell(counted(done, "rollout"))


def what_of(overrides: Sequence[str], config_dir: Path | None = None) -> str:
    """Return what is exported; only a folder of one's own may have kinds that agl does not.

    Raises:
        ConfigError: nobody says it, or it is nothing that can be.
    """
    named = [one.lstrip("+").partition("=")[2] for one in overrides if one.lstrip("+").startswith("what=")]
    if not named:
        raise ConfigError(f"say what: agl export what=KIND, one of {', '.join(KINDS)}")
    if config_dir is not None or Path("configs").is_dir():
        return named[-1]
    return one_of(named[-1], KINDS, "agl export: what")


def origin_of(export: Export, options: Options) -> Origin:
    """Return where the results are: a served store, the run that is named, or the newest that has such results.

    Raises:
        ConfigError: there is no such run, or two places are named.
    """
    if options.store_url is not None:
        records_to_read(options.store_url, options.run_dir)  # refuses two places
        return Origin(store=partial(records_to_read, options.store_url, None))
    folder = _folder(export, options.run_dir)
    if folder is None:  # a store's file that is in no run's folder
        return Origin(store=partial(records_to_read, None, options.run_dir))
    has_records = (folder / FILE_IN_RUN).is_file()
    return Origin(
        store=partial(records_to_read, None, str(folder)) if has_records else None,
        run_dir=folder,
        learner=partial(_learner, folder) if (folder / SETTINGS_FILE).is_file() else None,
    )


def _folder(export: Export, run_dir: str | None) -> Path | None:
    if run_dir is None:
        begun = sorted(RUNS.glob(f"*/{SETTINGS_FILE}"), key=lambda file: file.stat().st_mtime, reverse=True)
        found = next((file.parent for file in begun if export.is_in(file.parent)), None)
        return found or newest_run_folder() or file_of_records(None).parent
    places = [Path(run_dir).expanduser(), RUNS / run_dir]
    folder = next((place for place in places if place.is_dir() and export.is_in(place)), None)
    if folder is not None:
        return folder
    file = file_of_records(run_dir)
    return file.parent if file.name == FILE_IN_RUN else None


def _learner(folder: Path) -> Learner:
    settings = load_settings(folder / SETTINGS_FILE).with_values(run_dir=str(folder))
    return build(settings, Learner, "learner")  # type: ignore[type-abstract]


def report_of(what: str, exported: Exported, origin: Origin) -> dict[str, Any]:
    """Return what was written as plain values."""
    return {
        "what": what,
        "path": str(exported.path),
        "run_dir": None if origin.run_dir is None else str(origin.run_dir),
        "bytes": _size(exported.path),
        "counts": exported.counts,
        "left_out": dict(exported.left_out.most_common()),
        "notes": list(exported.notes),
    }


def lines_of(report: Mapping[str, Any], *, width: int) -> list[str]:
    """Return the report for people."""
    counts = [counted(number, name.removesuffix("s")) for name, number in report["counts"].items()]
    lines = wrapped(f"{report['path']}: {', '.join(counts)}, {size_words(report['bytes'])}", width=width)
    below = [] if report["run_dir"] is None else [f"of {report['run_dir']}"]
    below += report["notes"]
    if report["left_out"]:
        causes = [f"{cause} {number}" for cause, number in report["left_out"].items()]
        below.append(f"left out: {', '.join(causes)}")
    return lines + [line for one in below for line in wrapped(one, width=width, indent="  ")]


def size_words(num_bytes: int) -> str:
    """Return a file's size in a unit that fits it."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return counted(num_bytes, "byte")


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size
