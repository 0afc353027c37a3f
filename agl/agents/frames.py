"""Frames: objects on the pipes between a runner and the processes of its isolated agents.

A frame is four bytes of length and a pickle. Both ends run the same user's code, so pickles are as trusted as that.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import struct
import sys
import threading
from dataclasses import dataclass
from typing import Any, BinaryIO

from agl.agents.base import Assignment
from agl.tracing.reward import Reward
from agl.types import Span

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first frame to the process.

    Args:
        agent: what it runs, pickled.
        path: where modules are found.
        log_level: of the runner's root logger.
    """

    agent: bytes
    path: list[str]
    log_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One attempt to run; ``parent`` is the attempt's root span as other processes are told of it."""

    assignment: Assignment
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """What the attempt added to its log."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The attempt has ended well; ``result`` is pickled, ``rewards`` are what it emitted."""

    result: bytes
    rewards: list[Reward]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt, or the start, raised; ``error`` is the exception pickled, None where it cannot be."""

    error: bytes | None
    kind: str
    message: str
    traceback: str


Frame = Span | Logged | Done | Failed


class UnknownClassError(pickle.UnpicklingError):
    """A frame holds an object of a class that this process has not loaded."""


class FrameWriter:
    """Writes frames to a file descriptor, from any thread.

    Args:
        descriptor: of a pipe's writing end; blocking.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, value: object) -> None:
        """Write one frame, waiting for room.

        Raises:
            Exception: what pickling raises; nothing was written then.
        """
        frame = framed(value)
        with self._lock:
            while frame:
                frame = frame[os.write(self._descriptor, frame) :]


def framed(value: object) -> bytes:
    """Return the frame of a value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def read_frame(file: BinaryIO) -> Any:
    """Wait for the next frame and return its value.

    Raises:
        EOFError: there is no more.
    """
    head = file.read(_LENGTH.size)
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    data = file.read(length)
    if not length or len(data) < length:
        raise EOFError
    return pickle.loads(data)  # noqa: S301 - from the runner


async def next_frame(reader: asyncio.StreamReader) -> bytes:
    """Wait for the next frame and return its pickle.

    Raises:
        EOFError: there is no more.
    """
    return await reader.readexactly(_LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0])


def loaded_value(data: bytes) -> Any:
    """Return the value of a pickle without importing anything for it.

    Raises:
        UnknownClassError: it needs a class of a module that this process has not imported.
    """
    return _Loaded(io.BytesIO(data)).load()


class _Loaded(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name not in sys.modules:
            raise UnknownClassError(f"{module_name}.{global_name}")
        return super().find_class(module_name, global_name)
