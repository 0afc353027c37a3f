"""A run's folder: claim a new one, find one to resume, keep others out of it, and the log in it."""

from __future__ import annotations

import logging
import os
import platform
import re
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path

from agl import __version__
from agl.errors import AglError, ConfigError
from agl.http.chatty import quieten

NEWEST = "newest"
RUNS = Path("runs")
LOCK_FILE = ".lock"
SETTINGS_FILE = "settings.yaml"
LOG_FILE = "agl.log"
ENDING_FILE = "ending.txt"
"""Written when a run has come to its end; a run without it can be resumed by ``--resume`` alone."""
FIRST_FILES = frozenset(
    {SETTINGS_FILE, LOG_FILE, LOCK_FILE, *(f"store.sqlite{end}" for end in ("", ".lock", "-wal", "-shm"))}
)
"""What is in the folder before the first number of the run."""

_ILLEGAL = re.compile(r'[<>:"|?*\\\x00-\x1f]')
"""Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file."""
OF_OTHERS = frozenset({"agl.launch.evaluation.EvaluationRun"})
"""What the settings of runs build that another command than ``agl train`` goes on with."""

log = logging.getLogger(__name__)


def run_folder(name: str | None) -> Path | None:
    """Return the folder of a run that is given by its path or its name under ``runs/``; None where it is neither."""
    places = () if not name else (Path(name), RUNS / name)
    return next((place for place in places if (place / SETTINGS_FILE).is_file()), None)


def unused(run_dir: Path) -> Path:
    """Return the folder, or with ``-2``, ``-3``, ... behind its name where that is there already.

    What no file may be called on Windows is replaced in its name: a run is copied to other machines.
    """
    run_dir = run_dir.with_name(_ILLEGAL.sub("_", run_dir.name).rstrip(". ") or "run")
    numbered = (run_dir.with_name(f"{run_dir.name}-{number}") for number in count(2))
    return next(folder for folder in chain([run_dir], numbered) if not folder.exists())


def claim(run_dir: Path) -> frozenset[str]:
    """Make the folder of a new run; return the names of what lay in it already.

    Raises:
        ConfigError: there is a run in it, or it cannot be made.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"run_dir {run_dir} cannot be made: {error.strerror}") from error
    if (run_dir / SETTINGS_FILE).exists():
        raise ConfigError(
            f"run_dir {run_dir} holds a run; go on with --resume {run_dir}, or choose another folder"
        )
    return frozenset(path.name for path in run_dir.iterdir())


def abandon(run_dir: Path, *, before: Collection[str] = ()) -> None:
    """Remove what a run that never began has left, and the folders that are empty then.

    A folder with results of the run in it is left as it is.

    Args:
        run_dir: the run's folder.
        before: names of what lay in it when it was claimed; that is kept.
    """
    left = {path.name for path in run_dir.iterdir()} - set(before)
    if not left <= FIRST_FILES:
        return
    for name in left:
        (run_dir / name).unlink()
    with suppress(OSError):  # not empty
        run_dir.rmdir()
        if run_dir.parent == RUNS:
            RUNS.rmdir()


def to_resume(run: str, *, target: str | None = None) -> Path:
    """Return the folder of the run to resume.

    Args:
        run: a folder, the name of one under ``runs/``, or ``newest``: of those that have not ended, the one begun last.
        target: what the newest one's settings build; None is whatever no other command has for its own.

    Raises:
        ConfigError: there is no such run, or another command goes on with it.
    """
    if run != NEWEST:
        for folder in (Path(run), RUNS / run):
            if (folder / SETTINGS_FILE).is_file():
                return _of_kind(folder, target)
        raise ConfigError(
            f"there is no run {run}: neither {Path(run)} nor {RUNS / run} has a {SETTINGS_FILE}"
        )
    begun = [
        path
        for path in RUNS.glob(f"*/{SETTINGS_FILE}")
        if not (path.parent / ENDING_FILE).exists() and _builds(path, target)
    ]
    if not begun:
        raise ConfigError(f"no run to resume: {RUNS.resolve()} has none that stopped before its end")
    return max(begun, key=lambda path: path.stat().st_mtime).parent


def _of_kind(folder: Path, target: str | None) -> Path:
    """Return the folder if its run is of the kind that is looked for."""
    if _builds(folder / SETTINGS_FILE, target):
        return folder
    kind, command = ("an evaluation", "eval") if target is None else ("a training run", "train")
    raise ConfigError(f"{folder} is {kind}: go on with it by agl {command} --resume {folder}")


def _builds(settings_file: Path, target: str | None) -> bool:
    """Whether a run is of the kind that is looked for."""
    lines = settings_file.read_text(encoding="utf-8", errors="replace").splitlines()
    built = next((line.partition(":")[2].strip() for line in lines if line.startswith("_target_:")), "")
    return built not in OF_OTHERS if target is None else built == target


@contextmanager
def locked(run_dir: Path) -> Generator[None]:
    """Keep other commands out of the folder while the block runs; the system lets go when the process dies.

    Raises:
        ConfigError: another command is at work in it.
    """
    if find_spec("fcntl") is None:  # Windows
        yield
        return
    import fcntl

    with (run_dir / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another agl is at work in {run_dir}; end it or choose another folder"
            ) from error
        yield


@contextmanager
def logged(run_dir: Path) -> Generator[None]:
    """Write the log to ``run_dir/agl.log`` while the block runs, the traceback of an unexpected error included."""
    path = run_dir / LOG_FILE
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    quieten()
    try:
        log.info("agl %s in process %d on Python %s", __version__, os.getpid(), platform.python_version())
        yield
        log.info("done")
    except KeyboardInterrupt:
        log.warning("interrupted")
        raise
    except AglError as error:
        log.error("%s", error)  # noqa: TRY400 - expected: the message says it all
        raise
    except Exception as error:
        log.exception("the command failed")
        error.add_note(f"traceback in {path}")
        raise
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
