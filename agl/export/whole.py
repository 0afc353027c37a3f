"""Files and folders that appear whole or not at all, and never in place of others unless that is asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agl.errors import AglError, ConfigError


def refuse_existing(path: Path, *, force: bool) -> None:
    """Check that something can be written there.

    Raises:
        ConfigError: there is something already, or no folder to write it in.
    """
    if path.is_symlink() or path.exists():
        if not force:
            raise ConfigError(f"{path} is there already: give another --out, or --force to replace it")
        if path.resolve() in (Path.cwd(), *Path.cwd().parents):
            raise ConfigError(f"{path} is the folder that you are in: it is not replaced, give another --out")
    nearest = next(parent for parent in (path.absolute().parent, *path.absolute().parents) if parent.exists())
    if not nearest.is_dir():
        raise ConfigError(f"{path} cannot be made: {nearest} is not a folder")


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
    if path.is_dir() and not path.is_symlink():
        _remove(path)
    elif partial.is_dir():
        path.unlink(missing_ok=True)
    partial.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
