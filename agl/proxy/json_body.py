"""JSON bodies of requests, read with a limit on their depth.

The parser reads 1,024 levels and the writer writes 254: what lies between would fail after the model has answered.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, cast

import orjson

from agl.proxy.refusal import CallRefusedError

MAX_DEPTH = 200
"""Of a request, in levels of lists and objects; a translation and a record add a few to it."""
_NESTING = (dict, list)


def object_from_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object in an HTTP body.

    Raises:
        CallRefusedError: 400, there is none, or it is nested too deep.
    """
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        message = f"the request body is not JSON: {error}"
        raise CallRefusedError(message, status=400, code="invalid_json") from error
    if not isinstance(parsed, dict):
        raise CallRefusedError("the request body is not a JSON object", status=400, code="invalid_type")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_deeper(parsed, MAX_DEPTH):
        message = f"the request body is nested deeper than {MAX_DEPTH} levels"
        raise CallRefusedError(message, status=400, code="nested_too_deep")
    return cast("dict[str, Any]", parsed)


def _is_deeper(parsed: object, limit: int) -> bool:
    """Whether lists and objects lie in each other beyond the limit, found level by level."""
    level: list[Any] = [parsed]
    for _ in range(limit):
        inner = chain.from_iterable(node.values() if type(node) is dict else node for node in level)
        level = [node for node in inner if type(node) in _NESTING]
        if not level:
            return False
    return True
