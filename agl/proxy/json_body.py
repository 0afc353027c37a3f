"""JSON bodies of requests, read with a limit on their depth.

The parser reads 1,024 levels and the writer writes 254: what lies between would fail after the model has answered.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from agl.proxy.refusal import CallRefusedError

MAX_DEPTH = 200
"""Of a request, in levels of lists and objects; a translation and a record add a few to it."""
_WRITTEN_DEPTH = 254


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
    request = cast("dict[str, Any]", parsed)
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_too_deep(request):
        message = f"the request body is nested deeper than {MAX_DEPTH} levels"
        raise CallRefusedError(message, status=400, code="nested_too_deep")
    return request


def _is_too_deep(parsed: object) -> bool:
    """Whether the writer would fail if the value had all the levels around it that are kept for others."""
    surrounded = parsed
    for _ in range(_WRITTEN_DEPTH - MAX_DEPTH):
        surrounded = [surrounded]
    try:
        orjson.dumps(surrounded)
    except orjson.JSONEncodeError:
        return True
    return False
