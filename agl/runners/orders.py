"""What a pool and its child processes say to each other, over the child's standard input and output.

The pool writes the order, its length first, later perhaps one ``DRAIN``; the end of the stream means that nobody needs
the child any more. The child writes one JSON object a line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, cast

from agl.agents.base import Agent
from agl.runners.grading import Grader
from agl.runners.hooks import Hook

LENGTH_BYTES = 8
MARK = "AGL_RUNNER_PROCESS"
"""In the environment of a child and of all that it starts, another value for each child."""
DRAIN = b"d"
"""Take no more rollouts, finish what is in hand, and end."""

Kind = Literal["ready", "settled", "refused"]
"""The runner has begun; it has ended a first attempt; it cannot work, and no other process can either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """All that a child needs to know. It travels over a pipe: command lines can be read by everyone."""

    store_url: str
    store_token: str | None = field(repr=False)
    identity: str
    """Of the store; another one under that URL is refused."""
    agent: Agent
    grader: Grader | None = None
    hooks: Sequence[Hook | type[Hook] | str] = ()
    run_id: str | None = None
    max_concurrency: int
    heartbeat_seconds: float
    drain_seconds: float
    follow_libraries: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One line of a child.

    Args:
        kind: what happened.
        cause: of a refusal: the class of the error.
        message: of a refusal.
    """

    kind: Kind
    cause: str = ""
    message: str = ""

    def line(self) -> bytes:
        """Return it as a line."""
        return json.dumps({"kind": self.kind, "cause": self.cause, "message": self.message}).encode() + b"\n"


def word_in(line: bytes) -> Word | None:
    """Return the word that a line holds, None where it holds none."""
    try:
        found: Any = json.loads(line)
        return Word(**cast("dict[str, Any]", found))
    except (ValueError, TypeError):
        return None


def framed(order: bytes) -> bytes:
    """Return a packed order as it is written to the child."""
    return len(order).to_bytes(LENGTH_BYTES, "big") + order


def read_order(source: BinaryIO) -> bytes | None:
    """Return the packed order; None when the stream ends before it is whole."""
    length = _exactly(source, LENGTH_BYTES)
    return None if length is None else _exactly(source, int.from_bytes(length, "big"))


def _exactly(source: BinaryIO, size: int) -> bytes | None:
    """Read so many bytes from a stream without a buffer."""
    read = bytearray()
    while len(read) < size:
        more = source.read(size - len(read))
        if not more:
            return None
        read += more
    return bytes(read)
