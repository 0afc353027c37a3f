"""Send agents, graders and hooks to another process on this machine: code by its place, values by pickle.

Plain pickle cannot name what stands in the script that was started or in a file loaded by its path; here such code
goes as ``path/file.py:name`` and the other process loads the file again.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from agl.agents.load import load_object
from agl.errors import ConfigError

_LOADED_BY_PATH = "_agl_"
"""How names of modules begin that ``load_object`` made of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parcel:
    """Bytes, and where the code is that they name."""

    search_path: list[str]
    content: bytes


def packed(value: object) -> bytes:
    """Return a value as bytes for ``unpacked`` in another process of this machine.

    Raises:
        ConfigError: a part of it cannot be found or rebuilt there; the message says which and what to do.
    """
    written = io.BytesIO()
    try:
        _PlacePickler(written, pickle.HIGHEST_PROTOCOL).dump(value)
    except ConfigError:
        raise
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"the agent cannot be sent to runner processes ({error}): name it as 'package.module:name' or"
            " 'path/file.py:name', or use runner=inline"
        ) from error
    return pickle.dumps(_Parcel(search_path=_search_path(), content=written.getvalue()))


def unpacked(data: bytes) -> Any:
    """Return the value; imports the code that it names.

    Raises:
        ConfigError: code that this process cannot find or load.
    """
    parcel: _Parcel = pickle.loads(data)  # noqa: S301 - of the parent process, over a pipe of its own
    sys.path[:] = [*sys.path[:1], *(place for place in parcel.search_path if place not in sys.path[:1])]
    try:
        return pickle.loads(parcel.content)  # noqa: S301 - the same
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"a runner process cannot load the agent: {error}") from error


class _PlacePickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Name code that pickle cannot; everything else as always."""
        if not isinstance(obj, FunctionType | type):
            return NotImplemented
        if "<" in obj.__qualname__:
            raise ConfigError(
                f"{obj.__qualname__} in {obj.__module__} has no name by which runner processes find it: move it to the"
                " top of its module, or use runner=inline"
            )
        if obj.__module__ == "__main__" or obj.__module__.startswith(_LOADED_BY_PATH):
            return load_object, (f"{_place(sys.modules[obj.__module__])}:{obj.__qualname__}",)
        return NotImplemented


def _place(module: ModuleType) -> str:
    """Where another process finds the module: a dotted name, or the path of its file."""
    if module.__name__ == "__main__" and module.__spec__ is not None:  # python -m package.module
        return module.__spec__.name
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        raise ConfigError(
            "an agent written at the prompt cannot be sent to runner processes: put it into a file, or use"
            " runner=inline"
        )
    return str(Path(file).resolve())


def _search_path() -> list[str]:
    """This process's, and the folders of files loaded by path, whose neighbours they may have imported."""
    loaded = [
        str(Path(file).parent)
        for name, module in list(sys.modules.items())
        if name.startswith(_LOADED_BY_PATH) and (file := getattr(module, "__file__", None))
    ]
    return list(dict.fromkeys([*sys.path, *loaded]))
