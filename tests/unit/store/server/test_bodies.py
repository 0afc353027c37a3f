from __future__ import annotations

import asyncio
import gzip
from collections.abc import MutableMapping
from typing import Any

import orjson
import pytest

from agl.store import wire
from agl.store.server.bodies import (
    BodyMemory,
    BodyReader,
    Hold,
    decoded,
    gunzip,
    media_type_of,
    parameters_from,
    require_few_values,
)
from agl.store.server.operation import Body
from agl.store.server.plain_spans import plain_span
from agl.store.server.refusal import ClientGoneError, RefusedError
from agl.types import RolloutRequest, Span, SpanQuery

READER = BodyReader(max_bytes=100, seconds=5.0)
ROLLOUTS = Body(kind=RolloutRequest, many=True)


class Sender:
    """A client that sends its pieces and then, when ``stalls``, nothing more."""

    def __init__(self, *pieces: bytes, stalls: bool = False, leaves: bool = False) -> None:
        self.pieces = list(pieces)
        self.stalls = stalls
        self.leaves = leaves

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.pieces:
            piece = self.pieces.pop(0)
            return {
                "type": "http.request",
                "body": piece,
                "more_body": bool(self.pieces) or self.stalls or self.leaves,
            }
        if self.leaves:
            return {"type": "http.disconnect"}
        return await asyncio.get_running_loop().create_future()


def hold(max_bytes: int = 10**9) -> Hold:
    return Hold(BodyMemory(max_bytes))


async def read(sender: Sender, reader: BodyReader = READER, **headers: str) -> bytes:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return await reader.read(given, sender, hold())


def code(caught: pytest.ExceptionInfo[RefusedError]) -> str:
    return caught.value.code


async def test_a_body_comes_in_pieces() -> None:
    assert await read(Sender(b"ab", b"", b"c")) == b"abc"
    assert await read(Sender(b"")) == b""


async def test_a_gzip_body_is_unpacked() -> None:
    assert await read(Sender(gzip.compress(b"abc", mtime=0)), content_encoding="gzip") == b"abc"


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
async def test_another_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await read(Sender(b"x"), content_encoding=encoding)
    assert code(caught) == "unsupported_media_type"


async def test_a_body_over_the_limit_is_read_to_its_end_and_refused() -> None:
    sender = Sender(b"x" * 60, b"x" * 60, b"x" * 60)
    with pytest.raises(RefusedError) as caught:
        await read(sender)
    assert code(caught) == "too_large"
    assert sender.pieces == []


async def test_a_body_that_says_it_is_far_too_large_is_not_read() -> None:
    for length in ("801", "9" * 30):
        sender = Sender(b"x")
        with pytest.raises(RefusedError) as caught:
            await read(sender, content_length=length)
        assert (code(caught), caught.value.closes, sender.pieces) == ("too_large", True, [b"x"])


async def test_a_client_that_asks_first_is_told_before_it_sends() -> None:
    sender = Sender(b"x")
    with pytest.raises(RefusedError) as caught:
        await read(sender, content_length="101", expect="100-continue")
    assert (code(caught), sender.pieces) == ("too_large", [b"x"])


async def test_a_body_that_stalls_is_given_up() -> None:
    with pytest.raises(RefusedError) as caught:
        await read(Sender(b"x", stalls=True), BodyReader(max_bytes=100, seconds=0.01))
    assert (code(caught), caught.value.closes) == ("timeout", True)


async def test_a_client_that_leaves_is_not_answered() -> None:
    with pytest.raises(ClientGoneError):
        await read(Sender(b"x", leaves=True))


async def test_all_bodies_together_fit_in_memory() -> None:
    memory = BodyMemory(200_000)
    first, second = Hold(memory), Hold(memory)
    reader = BodyReader(max_bytes=150_000, seconds=5.0)
    await reader.read({}, Sender(b"x" * 140_000), first)

    with pytest.raises(RefusedError) as caught:
        await reader.read({}, Sender(b"x" * 140_000), second)
    assert code(caught) == "too_many_requests"
    second.release()
    assert await reader.read({}, Sender(b"small"), Hold(memory)) == b"small"

    first.release()
    assert len(await reader.read({}, Sender(b"x" * 140_000), second)) == 140_000
    second.release()
    assert memory.num_bytes == len(b"small")


def test_gunzip_reads_several_members() -> None:
    assert gunzip(gzip.compress(b"ab", mtime=0) + gzip.compress(b"c", mtime=0), 3) == b"abc"
    assert gunzip(b"", 3) == b""


def test_a_zip_bomb_is_not_unpacked() -> None:
    with pytest.raises(RefusedError) as caught:
        gunzip(gzip.compress(b"\0" * 50_000_000), 1000)
    assert code(caught) == "too_large"


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        gzip.compress(b"abc", mtime=0)[:-3],
        gzip.compress(b"abc", mtime=0) + b"x",
        b"\x1f\x8b" + b"\0" * 20,
    ],
)
def test_wrong_gzip_is_a_bad_request(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        gunzip(data, 1000)
    assert code(caught) == "bad_request"


@pytest.mark.parametrize("given", [None, b"application/json", b"Application/JSON; charset=UTF-8"])
def test_json_is_read_also_unnamed(given: bytes | None) -> None:
    assert media_type_of({} if given is None else {b"content-type": given}, ROLLOUTS) == "application/json"


@pytest.mark.parametrize(
    "given", [b"text/plain", b"", b"application/json; charset=latin-1", b"application/x-www-form-urlencoded"]
)
def test_other_media_types_are_refused(given: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        media_type_of({b"content-type": given}, ROLLOUTS)
    assert code(caught) == "unsupported_media_type"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"task": NaN}',
        b'{"task": Infinity}',
        b'{"task": 1e999}',
        b'{"task": "\\ud800"}',
        b'{"task": "\xff"}',
        b"[" * 10_000 + b"]" * 10_000,
        b'{"task": 1} {"task": 2}',
    ],
)
async def test_what_is_no_json_is_a_bad_request(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        await decoded(data, ROLLOUTS)
    assert code(caught) == "bad_request"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1", "the body: "),
        (b"null", "the body: "),
        (b"{}", "task: Field required"),
        (b'{"task": 1, "tusk": 2}', "tusk: Extra inputs are not permitted"),
        (b'{"task": 1, "config": {"max_attempts": 0}}', "config.max_attempts: Input should be greater"),
        (b'{"task": 1, "priority": "7"}', "priority: Input should be a valid integer"),
        (b'{"task": 1, "priority": true}', "priority: Input should be a valid integer"),
        (b'{"task": 1, "rollout_id": "a/b"}', "rollout_id: an id has 1 to 200 characters, no slash"),
        (b'[{"task": 1}, {"task": 2, "mode": "x"}]', "[1].mode: Input should be"),
        (b'{"mode": 1, "x": 2}', "(and 2 more)"),
    ],
)
async def test_a_wrong_field_is_named(data: bytes, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await decoded(data, ROLLOUTS)
    assert code(caught) == "invalid"
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_long_list_is_read_in_turns_with_others() -> None:
    metadata = {str(key): [key] * 10 for key in range(10)}
    config = {"timeout_seconds": 1.5, "max_attempts": 3, "retry_on": ["failed", "timeout"]}
    requests = [
        {"task": metadata, "priority": number, "metadata": metadata, "config": config}
        for number in range(wire.MAX_BATCH)
    ]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    read = await decoded(orjson.dumps(requests), ROLLOUTS)
    task.cancel()

    assert [request.priority for request in read] == list(range(wire.MAX_BATCH))
    assert turns > 1


async def test_a_wrong_record_late_in_a_long_list_is_named_by_its_place() -> None:
    requests: list[dict[str, Any]] = [{"task": "x" * 1000} for _ in range(1000)]
    requests[777]["mode"] = "x"
    with pytest.raises(RefusedError, match=r"^\[777\]\.mode: "):
        await decoded(orjson.dumps(requests), ROLLOUTS)


async def test_a_list_has_a_longest_length() -> None:
    with pytest.raises(RefusedError, match="a list of 10001: at most 10000") as caught:
        await decoded(orjson.dumps([{"task": 1}] * (wire.MAX_BATCH + 1)), ROLLOUTS)
    assert code(caught) == "invalid"


async def test_an_empty_body_is_the_defaults_where_there_are_such() -> None:
    assert await decoded(b"", Body(kind=wire.Start, required=False)) == wire.Start()


def test_parameters_become_a_query() -> None:
    found = parameters_from(SpanQuery, b"rollout_id=a%20b&limit=5&attributes=%7B%22k%22%3A1%7D")
    assert found == SpanQuery(rollout_id="a b", limit=5, attributes={"k": 1})
    assert parameters_from(SpanQuery, b"") == SpanQuery()


@pytest.mark.parametrize(
    ("query", "refused", "message"),
    [
        (b"limit=0", "invalid", "limit: Input should be greater"),
        (b"limit=x", "invalid", "limit: Input should be a valid integer"),
        (b"colour=red", "invalid", "colour is not a parameter here"),
        (b"limit=1&limit=2", "invalid", "limit is given twice"),
        (b"attributes=no", "invalid", "attributes is not a JSON object"),
        (b"attributes=[1]", "invalid", "attributes: Input should be a valid dictionary"),
        (b"name=%ff", "bad_request", "cannot be read"),
        (b"name=%ed%a0%80", "bad_request", "cannot be read"),
        (b"name=\xff", "bad_request", "cannot be read"),
        (b"name", "bad_request", "cannot be read"),
        (b"&".join([b"name=x"] * 2000), "bad_request", "cannot be read"),
    ],
)
def test_wrong_parameters_are_named(query: bytes, refused: str, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parameters_from(SpanQuery, query)
    assert code(caught) == refused
    assert message in str(caught.value)


@pytest.mark.parametrize("part", [b"[],", b"{},", b'{"":0},', b"0,"])
def test_a_body_of_tiny_values_is_refused_before_it_is_decoded(part: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        require_few_values(b"[" + part * (12_000_000 // len(part)) + b"0]")
    assert code(caught) == "too_large"


def test_text_is_no_structure_though_it_is_json_itself() -> None:
    messages = orjson.dumps([{"role": "user", "content": "hello, you", "parts": []}] * 200_000).decode()
    require_few_values(orjson.dumps({"task": messages}))
    require_few_values(orjson.dumps([0.25] * 1_000_000))


@pytest.mark.parametrize("count", [1, 3, 5000])
async def test_a_number_is_never_rounded_on_its_way_to_the_store(count: int) -> None:
    text = (
        b'{"span_id": "1", "trace_id": "2", "name": "n", "start_time_ns": 1, '
        b'"attributes": {"n": 36893488147419103233}}'
    )
    body = Body(kind=Span, many=True, plain=plain_span)
    data = text if count == 1 else b"[" + b",".join([text] * count) + b"]"
    read = await decoded(data, body)
    spans = [read] if count == 1 else read
    assert {span.attributes["n"] for span in spans} == {36893488147419103233}  # 2**65 + 1
