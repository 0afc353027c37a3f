"""Requests to one server; its refusals as errors that say whether to try again."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace

import httpx
import pytest
from model_network import CUT, SILENT
from scripted_store import until

from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.http import HttpServer

URL = "http://model.test/v1"


async def test_an_answer_is_its_body_and_the_request_carries_the_key(http, model_server):
    model_server.answers = [httpx.Response(200, json={"ok": 1})]
    assert http.parsed(await http.post("/chat/completions", {"a": 1}, headers={"x-b": "c"})) == {"ok": 1}
    (request,) = model_server.requests
    assert str(request.url) == f"{URL}/chat/completions"
    assert request.headers["authorization"] == "Bearer s3cret"
    assert request.headers["x-b"] == "c"
    assert request.content == b'{"a":1}'


@pytest.mark.parametrize(
    ("status", "headers", "retry", "sick", "after"),
    [
        (400, {}, False, False, None),
        (404, {}, False, False, None),
        (429, {"retry-after": "7"}, True, False, 7.0),
        (429, {"x-should-retry": "false"}, False, False, None),
        (500, {}, True, True, None),
        (503, {"retry-after-ms": "50"}, True, True, 0.05),
    ],
)
async def test_a_refusal_keeps_status_and_body_and_says_whether_to_try_again(
    http, model_server, status, headers, retry, sick, after
):
    body = {"error": {"message": "no", "code": "x"}}
    model_server.answers = [httpx.Response(status, json=body, headers=headers)]
    with pytest.raises(UpstreamError) as caught:
        await http.post("/x", {})
    error = caught.value
    assert (error.status, error.body, error.retry, error.sick, error.retry_after) == (
        status,
        body,
        retry,
        sick,
        after,
    )


async def test_the_key_is_masked_in_what_the_server_says(http, model_server):
    model_server.answers = [
        httpx.Response(401, text='{"error": "bad key s3cret"}'),
        OSError("no way to s3cret@model.test"),
    ]
    for _ in range(2):
        with pytest.raises(UpstreamError) as caught:
            await http.post("/x", {})
        assert "s3cret" not in f"{caught.value} {caught.value.body}"
        assert "***" in str(caught.value)


async def test_a_redirect_is_not_followed(http, model_server):
    model_server.answers = [httpx.Response(307, headers={"location": "http://169.254.169.254/"})]
    with pytest.raises(UpstreamError, match="neither an answer nor an error") as caught:
        await http.post("/x", {})
    assert caught.value.status == 502
    assert not caught.value.retry
    assert len(model_server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "status"), [(OSError("refused"), 502), ("unreachable", 502), (SILENT, 504), (CUT, 502)]
)
async def test_no_answer_is_tried_again_and_speaks_against_the_server(model_server, answer, status):
    model_server.answers = [answer]
    http = HttpServer(URL, headers={}, key=None, timeout_seconds=0.01, connect_seconds=0.01)
    with pytest.raises(UpstreamError, match=URL) as caught:
        await http.post("/x", {})
    assert (caught.value.status, caught.value.retry, caught.value.sick) == (status, True, True)


@pytest.mark.parametrize("body", [b"", b"garbage", b"[1]", b'"text"', b"\xff"])
async def test_an_answer_that_is_no_object_is_a_502(http, body):
    with pytest.raises(UpstreamError, match="something else than a JSON object") as caught:
        http.parsed(body)
    assert (caught.value.status, caught.value.retry) == (502, True)


async def test_events_come_as_they_are_sent(http, model_server):
    model_server.answers = [model_server.stream(b"event: a\nda", b"ta: 1\n\ndata: 2\n", b"\n")]
    async with http.posted_events("/x", {}) as events:
        assert [(event.event, event.data) async for event in events] == [("a", b"1"), ("message", b"2")]
    assert model_server.num_closed == 0


async def test_a_refused_stream_is_an_error_on_entering(http, model_server):
    model_server.answers = [httpx.Response(429, json={"error": "busy"})]
    with pytest.raises(UpstreamError) as caught:
        async with http.posted_events("/x", {}):
            pass
    assert (caught.value.status, caught.value.body) == (429, {"error": "busy"})


async def test_a_stream_that_breaks_is_an_error_of_its_events(http, model_server):
    model_server.answers = [model_server.stream(b"data: 1\n\n", CUT)]
    async with http.posted_events("/x", {}) as events:
        assert (await anext(events)).data == b"1"
        with pytest.raises(UpstreamError, match="broke off"):
            await anext(events)


async def test_leaving_a_stream_closes_it(http, model_server):
    model_server.answers = [model_server.stream(*[b"data: 1\n\n"] * 1000)]
    async with http.posted_events("/x", {}) as events:
        await anext(events)
        await events.aclose()
    assert model_server.num_closed == 1


@pytest.mark.parametrize(
    ("answer", "alive"),
    [
        (httpx.Response(200), True),
        (httpx.Response(401), True),
        (httpx.Response(503), False),
        (OSError("refused"), False),
    ],
)
async def test_a_probe_takes_any_answer_but_a_failure(http, model_server, answer, alive):
    model_server.answers = [answer]
    assert await http.probe() is alive
    assert {str(request.url) for request in model_server.requests} <= {f"{URL}/models"}


async def test_calls_at_once_have_a_connection_each_and_later_ones_take_them(http, model_server):
    model_server.answers = [httpx.Response(200, content=b"{}")]
    for _ in range(2):
        assert await asyncio.gather(*(http.post("/x", {}) for _ in range(100))) == [b"{}"] * 100
    assert len(model_server.lines) == 100


async def test_a_kept_connection_that_has_died_is_replaced_without_a_word(http, model_server):
    model_server.answers = [httpx.Response(200, content=b"{}"), CUT, httpx.Response(200, content=b"{}")]
    assert [await http.post("/x", {}) for _ in range(2)] == [b"{}"] * 2
    assert len(model_server.lines) == 2
    model_server.answers = [CUT, model_server.stream(b"data: 1\n\n")]
    async with http.posted_events("/x", {}) as events:
        assert [event.data async for event in events] == [b"1"]


async def test_a_cancelled_call_closes_its_connection_at_once(http, model_server):
    model_server.answers = [SILENT]
    call = asyncio.ensure_future(http.post("/x", {}))
    await until(lambda: model_server.requests)
    call.cancel()
    await asyncio.wait((call,))
    assert model_server.num_closed == 1


async def test_a_packed_answer_is_unpacked(http, model_server):
    packed = SimpleNamespace(
        status_code=200, headers={"content-encoding": "gzip"}, content=gzip.compress(b"{}")
    )
    model_server.answers = [packed]
    assert await http.post("/x", {}) == b"{}"
