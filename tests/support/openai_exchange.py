"""What is on the wire between OpenAI's clients and the proxy."""

from __future__ import annotations

from typing import Any

import orjson

DONE = "[DONE]"


def sse_data(body: bytes) -> list[Any]:
    """Return the data of each server-sent event, parsed; the end mark as it is."""
    data = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [DONE if item == DONE.encode() else orjson.loads(item) for item in data]
