"""Bodies: read within limits of size, time and memory, unpacked, and decoded to records.

JSON is checked by orjson, because it is strict (no NaN, no number beyond a double, no lone surrogate, no deep nesting),
and then read by pydantic in strict mode, because types are checked there as JSON knows them (no "1" for 1).
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import parse_qsl

import orjson
from pydantic import ValidationError

from agl.errors import InvalidRequestError
from agl.store import wire
from agl.store.server.operation import Body, Headers
from agl.store.server.polls import Receive
from agl.store.server.refusal import ClientGoneError, RefusedError
from agl.types.record import Record

TURN_SECONDS = 0.005
"""How long decoding or encoding may keep the event loop from others."""
_MAX_DISCARDED = (
    8  # times the body limit: how much of a refused body is read so that the client sees the refusal
)
_THREAD_BYTES = 64 * 1024  # unpacking more than this takes longer than handing it to a thread
_MAX_PARAMETERS = 1000
_ID_MESSAGE = (
    "an id has 1 to 200 characters, no slash, backslash, space or control character, and not dots alone"
)
_MAX_DECODED_BYTES = 96 * 1024 * 1024
"""Of the structure of one body, which is held twice while it is checked."""
_VALUE_BYTES = ((b"{", 232), (b"[", 64), (b",", 32))
"""What a body's structure takes once it is decoded, in CPython 3.11: a dict with an entry, a list, a place with a
value. A body of three bytes a value would take twenty times its size.
"""
_FEW_VALUES_BYTES = _MAX_DECODED_BYTES // 88  # no JSON takes more for a byte than `{},{},{},`
_LONG_BYTES = 512 * 1024  # a longer list is decoded in turns,
_MANY = 64  # so many records at once
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * 20  # the least integer beyond 64 bits has 20 digits
_SHORT_QUERY = (
    100  # URL parameters of so many bytes come again and again; decoding them costs as much as a span
)


class Hold:
    """The bytes that one request keeps in memory."""

    __slots__ = ("_memory", "num_bytes")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.num_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Count bytes. RefusedError when all requests together hold too many."""
        self.num_bytes += num_bytes
        self._memory.num_bytes += num_bytes
        if self._memory.num_bytes > self._memory.max_bytes and self.num_bytes > _THREAD_BYTES:
            message = f"requests under way hold {self._memory.num_bytes} bytes; try again"
            raise RefusedError("too_many_requests", message, closes=True)

    def release(self) -> None:
        """Forget them."""
        self._memory.num_bytes -= self.num_bytes
        self.num_bytes = 0


class BodyMemory:
    """The bytes that all requests keep in memory, and their limit. Small requests pass when it is reached."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0


class BodyReader:
    """Reads request bodies.

    Args:
        max_bytes: of one body, as it comes and unpacked.
        seconds: longest time until a body is there.
    """

    def __init__(self, *, max_bytes: int, seconds: float) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def read(self, headers: Headers, receive: Receive, hold: Hold) -> bytes:
        """Return the body, unpacked.

        Raises:
            RefusedError: it is too large, too slow, or packed in a way that is not known.
            ClientGoneError: the client left before its end.
        """
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"gzip", b"x-gzip", b""):
            text = encoding.decode("latin-1")[:40]
            raise RefusedError(
                "unsupported_media_type", f"content-encoding {text!r} is not read here; use gzip or none"
            )
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._receive(headers, receive, hold)
        except TimeoutError as error:
            message = f"the body did not arrive within {self._seconds:g} s"
            raise RefusedError("timeout", message, closes=True) from error
        if encoding in (b"identity", b""):
            return body
        if len(body) > _THREAD_BYTES:
            unpacked = await asyncio.to_thread(gunzip, body, self._max_bytes)
        else:
            unpacked = gunzip(body, self._max_bytes)
        hold.add(len(unpacked))
        return unpacked

    async def _receive(self, headers: Headers, receive: Receive, hold: Hold) -> bytes:
        """The whole body. One over the limit is read to its end, unkept, so that the client sees the refusal."""
        limit = self._max_bytes
        declared = headers.get(b"content-length", b"0")
        too_large = len(declared) > 18 or (declared.isdigit() and int(declared) > limit)
        hopeless = too_large and (len(declared) > 18 or int(declared) > limit * _MAX_DISCARDED)
        parts: list[bytes] = []
        size, more = 0, not (hopeless or (too_large and b"expect" in headers))
        while more and size <= limit * _MAX_DISCARDED:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            too_large = too_large or size > limit
            if too_large:
                parts.clear()
                hold.release()
            else:
                hold.add(len(part))
                parts.append(part)
        if too_large:
            raise _too_large(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def gunzip(data: bytes, max_bytes: int) -> bytes:
    """Return gzip data unpacked, never holding more than ``max_bytes`` of it.

    Raises:
        RefusedError: it is no gzip, ends early, or is larger.
    """
    parts: list[bytes] = []
    size = 0
    while data:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            part = unpacker.decompress(data, max_bytes - size + 1)
        except zlib.error as error:
            raise RefusedError("bad_request", f"the body is not gzip as its header says: {error}") from error
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not unpacker.eof:
            raise RefusedError("bad_request", "the gzip body ends early")
        parts.append(part)
        data = unpacker.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def media_type_of(headers: Headers, body: Body) -> str:
    """Return the request's media type, the operation's first where none is given.

    Raises:
        RefusedError: the operation does not take it.
    """
    given = headers.get(b"content-type")
    if given is None or given == body.media_types[0].encode("ascii"):
        return body.media_types[0]
    kind, _, rest = given.decode("latin-1").lower().partition(";")
    kind = kind.strip()
    charset = rest.partition("charset=")[2].partition(";")[0].strip('" ')
    if kind in body.media_types and charset in ("", "utf-8", "utf8", "us-ascii"):
        return kind
    raise RefusedError(
        "unsupported_media_type",
        f"content-type {given.decode('latin-1')[:80]!r} is not read here; use {' or '.join(body.media_types)}",
    )


async def decoded(data: bytes, body: Body) -> Any:
    """Return the value of a JSON body. A long list is decoded in turns with other requests.

    Raises:
        RefusedError: it is no JSON, or its fields are wrong.
    """
    if not data:
        if body.required:
            raise RefusedError("bad_request", "the body is empty: send JSON")
        data = b"{}"
    require_few_values(data)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RefusedError("bad_request", f"the body is not JSON: {error}") from error
    adapter = body.adapter
    if body.many and isinstance(value, list):
        values = cast("list[Any]", value)
        _require_short(values)
        if (len(data) > _LONG_BYTES or body.plain is not None) and not _may_round(data):
            return await _decoded_list(values, body)
        adapter = body.list_adapter
    elif body.plain is not None and not _may_round(data) and (record := body.plain(value)) is not None:
        return record
    try:
        return adapter.validate_json(data, strict=True)
    except ValidationError as error:
        raise RefusedError("invalid", fields_message(error)) from error


def _may_round(data: bytes) -> bool:
    """Whether JSON may hold an integer beyond 64 bits: orjson reads it as the nearest double, pydantic exactly."""
    return _MANY_DIGITS in data.translate(_DIGITS)


def require_few_values(data: bytes) -> None:
    """Check that JSON, once decoded, takes memory in proportion to a body of its size.

    What stands within text is not structure; of JSON within text most is left out, because a backslash follows.

    Raises:
        RefusedError: it holds too many values.
    """
    if len(data) <= _FEW_VALUES_BYTES:
        return
    num_bytes = sum(data.count(sign) * size for sign, size in _VALUE_BYTES)
    if num_bytes > _MAX_DECODED_BYTES:
        num_bytes -= sum(data.count(sign + b"\\") * size for sign, size in _VALUE_BYTES)
    if num_bytes > _MAX_DECODED_BYTES:
        raise RefusedError("too_large", "the body holds too many values for one request; send it in parts")


def _require_short(values: list[Any]) -> None:
    if len(values) > wire.MAX_BATCH:
        message = f"a list of {len(values)}: at most {wire.MAX_BATCH} in one request; send it in parts"
        raise RefusedError("invalid", message)


async def _decoded_list(values: list[Any], body: Body) -> list[Any]:
    records: list[Any] = []
    turn_ends = time.perf_counter() + TURN_SECONDS
    for start in range(0, len(values), _MANY):
        if time.perf_counter() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.perf_counter() + TURN_SECONDS
        part = values[start : start + _MANY]
        plain = [] if body.plain is None else [*map(body.plain, part)]
        if plain and all(plain):
            records += plain
            continue
        try:
            records += body.list_adapter.validate_json(orjson.dumps(part), strict=True)
        except ValidationError as error:
            raise RefusedError("invalid", fields_message(error, start)) from error
    return records


def parameters_from(kind: type[Record], query_string: bytes) -> Record:
    """Return the record that URL parameters give.

    Raises:
        RefusedError: a parameter is unknown, given twice, not UTF-8, or wrong.
    """
    if len(query_string) <= _SHORT_QUERY:
        return _known_parameters(kind, query_string)
    return _parameters(kind, query_string)


@lru_cache(maxsize=256)
def _known_parameters(kind: type[Record], query_string: bytes) -> Record:
    return _parameters(kind, query_string)


def _parameters(kind: type[Record], query_string: bytes) -> Record:
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query_string),
            errors="strict",
            max_num_fields=_MAX_PARAMETERS,
        )
    except ValueError as error:
        raise RefusedError("bad_request", f"the URL's parameters cannot be read: {error}") from error
    try:
        return kind.model_validate(wire.query_from(kind, pairs))
    except ValidationError as error:
        raise RefusedError("invalid", fields_message(error)) from error
    except InvalidRequestError as error:
        raise RefusedError("invalid", str(error)) from error


def fields_message(error: ValidationError, offset: int = 0) -> str:
    """Return in one line what is wrong with which field; ``offset`` is added to an index at its begin."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first, *rest = found[0]["loc"] or ("the body",)
    place = _path((first + offset, *rest) if isinstance(first, int) else (first, *rest))
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    said = _ID_MESSAGE if found[0]["type"] == "string_pattern_mismatch" else found[0]["msg"]
    return f"{place}: {said}{others}"


def _path(loc: Sequence[str | int]) -> str:
    """A field's path: ``[3].config.max_attempts``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:80]}" for part in loc)
    return text.removeprefix(".")


def _too_large(limit: int) -> RefusedError:
    return RefusedError("too_large", f"the body is larger than {limit} bytes; send it in parts", closes=True)
