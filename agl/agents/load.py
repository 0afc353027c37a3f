"""Load an object of the user's code by name: ``pkg.mod:name`` or ``path/file.py:name``.

A file in a folder with an ``__init__.py`` is imported as part of that package, under a private name made of its path,
so that its relative imports work and two recipes' packages of the same name do not meet. A plain file finds the modules
beside it while it is imported.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from agl.errors import ConfigError, MissingExtraError, extra_with


def load_object(target: str) -> object:
    """Return the object that ``target`` names; the same file gives the same module each time.

    Raises:
        ConfigError: no such file, module or attribute, or the module cannot be imported.
        MissingExtraError: it imports a library that one of agl's extras installs.
    """
    where, separator, name = target.rpartition(":")
    if not separator or not where or not name:
        raise ConfigError(f"{target!r} names no object: write 'package.module:name' or 'path/file.py:name'")
    module = _file_module(Path(where)) if _names_file(where) else _named_module(where)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{where} has no {name!r}{_nearest(part, found)}")
        found = getattr(found, part)
    return found


def absolute_target(target: str) -> str:
    """Return the target such that it names the same object from any working directory."""
    where, _, name = target.rpartition(":")
    return f"{Path(where).expanduser().resolve()}:{name}" if _names_file(where) else target


def _names_file(where: str) -> bool:
    return where.endswith(".py") or "/" in where


def _nearest(name: str, owner: object) -> str:
    names = [known for known in dir(owner) if not known.startswith("_")]
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    own = [
        known
        for known in names
        if getattr(getattr(owner, known), "__module__", None) == getattr(owner, "__name__", "")
    ]
    return f"; it defines {', '.join(own)}" if own else "; it defines nothing"


def _named_module(name: str) -> ModuleType:
    with _import_errors_named(name):
        return importlib.import_module(name)


def _file_module(path: Path) -> ModuleType:
    file = path.expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"there is no file {path} (looked at {file})")
    if not (file.parent / "__init__.py").is_file():
        return _plain_file(file)
    root = file.parent
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    package = _private_name(root)
    inner = file.relative_to(root).with_suffix("").parts
    name = ".".join((package, *(part for part in inner if part != "__init__")))
    with _import_errors_named(str(path)):
        if package not in sys.modules:
            init = root / "__init__.py"
            _execute(package, spec_from_file_location(package, init, submodule_search_locations=[str(root)]))
        return importlib.import_module(name)


def _plain_file(file: Path) -> ModuleType:
    name = _private_name(file)
    if name in sys.modules:
        return sys.modules[name]
    folder = str(file.parent)
    sys.path.insert(0, folder)
    try:
        with _import_errors_named(str(file)):
            return _execute(name, spec_from_file_location(name, file))
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _private_name(path: Path) -> str:
    return f"_agl_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"


def _execute(name: str, spec: ModuleSpec | None) -> ModuleType:
    if spec is None or spec.loader is None:
        raise ImportError(f"Python has no way to load {name}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for loaded in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
            del sys.modules[loaded]
        raise
    return module


@contextmanager
def _import_errors_named(where: str) -> Generator[None]:
    """Turn whatever an import raises into an error of ours that says what and where."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and (where == error.name or where.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {error.name!r} to import for {where!r}") from error
        extra = extra_with(error.name or "")
        if extra is not None:
            raise MissingExtraError(where, extra) from error
        raise ConfigError(
            f"{where} cannot be imported: it needs the module {error.name!r}, which is not installed"
        ) from error
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        raise ConfigError(
            f"{where} cannot be imported: {type(error).__name__}: {first}{_place(error)}"
        ) from error


def _place(error: Exception) -> str:
    """The last line of the user's code on the way to the error."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and file != __file__:
            place = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place
