"""Files and folders that appear whole or not at all, and never in place of others unless that is asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agl.errors import AglError, ConfigError

_MODEL = ("config.json", "adapter_config.json")
"""What a folder with a policy has."""
_RUN = ("settings.yaml", "store.sqlite", "evaluation.json")
"""And what one with a run may have."""


def refuse_existing(path: Path, *, force: bool) -> None:
    """Check that something can be written there.

    Raises:
        ConfigError: there is something already, it is nothing to replace, or there is no folder to write it in.
    """
    try:
        if path.is_symlink() or path.exists():
            _refuse_replacing(path, force=force)
        above = path.absolute().parents
        nearest = next(parent for parent in above if parent.exists())
    except OSError as error:  # a name that no file can have, or a folder that may not be looked into
        raise ConfigError(f"{path} cannot be made: {error.strerror or error}") from error
    if not nearest.is_dir():
        raise ConfigError(f"{path} cannot be made: {nearest} is not a folder")


def _refuse_replacing(path: Path, *, force: bool) -> None:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ConfigError(f"{path} is neither a file nor a folder: give another --out")
    if not force:
        raise ConfigError(f"{path} is there already: give another --out, or --force to replace it")
    if path.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise ConfigError(f"{path} is the folder that you are in: it is not replaced, give another --out")
    if path.is_dir() and not path.is_symlink():
        other = _not_exported(path)
        if other is not None:
            raise ConfigError(
                f"{path} is a folder with other things than an export in it ({other}): it is not replaced, give"
                " another --out"
            )


def _not_exported(folder: Path) -> str | None:
    """What is in a folder that no export put there: a run, or a folder beside no model."""
    inside = sorted(folder.iterdir())
    names = [path.name for path in inside]
    if any(name in names for name in _RUN):
        return next(name for name in names if name in _RUN)
    if any(name in names for name in _MODEL):
        return None
    return next((f"{path.name}/" for path in inside if path.is_dir()), None)


@contextmanager
def appearing(path: Path, *, force: bool) -> Generator[Path]:
    """Give a name to write a file or folder to; when the block ends it becomes ``path``, or nothing is left of it.

    Raises:
        ConfigError: there is something already, or it cannot be made.
        AglError: it cannot be written, as on a full disk.
    """
    refuse_existing(path, force=force)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror or error}") from error
    try:
        yield partial
        _put(partial, path, force=force)
    except OSError as error:
        if isinstance(error, AglError):
            raise
        raise AglError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        _remove(partial)


def _put(partial: Path, path: Path, *, force: bool) -> None:
    refuse_existing(path, force=force)  # it may have been made meanwhile
    if not (path.is_symlink() or path.exists()) or (path.is_file() and partial.is_file()):
        partial.replace(path)
        return
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.replace(old)  # it is gone only when the new one is there
    try:
        partial.replace(path)
    except OSError:
        old.replace(path)
        raise
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
