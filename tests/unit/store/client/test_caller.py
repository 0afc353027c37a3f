"""One call over the wire: what it meets at open, when it is tried again, and what its failures become."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Any

import orjson
import pytest
from scripted_store import BREAKS, IDENTITY, URL, Asked, Reply, ScriptedStore, Time, client_of, refused, until

from agl.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StoreError,
    StoreUnavailableError,
)
from agl.store.client import HttpStore
from agl.types import Rollout, RolloutRequest

ROLLOUT = {"rollout_id": "r", "task": 1, "created_at": 5.0}
CLAIM = {
    **ROLLOUT,
    "attempt": {
        "attempt_id": "a", "rollout_id": "r", "sequence_id": 1, "started_at": 1.0, "last_heartbeat_at": 1.0,
    },
}  # fmt: skip
GET = "GET /v1/rollouts/r"
START = "POST /v1/rollouts"


# Opening.


async def test_opening_learns_the_identity_and_sends_it_from_then_on(server: ScriptedStore) -> None:
    server.on(GET, lambda _: ROLLOUT)
    async with client_of(server, token="s3cret") as client:
        await client.get_rollout_by_id("r")
    assert [one.what for one in server.asked] == ["GET /v1/health", "GET /v1/workers?limit=1", GET]
    assert [one.headers.get("x-agl-store") for one in server.asked] == [None, IDENTITY, IDENTITY]
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer s3cret"}


@pytest.mark.parametrize(
    "answer", [Reply({"hello": 1}), Reply(raw=b"<html>"), refused(404, "not_found"), Reply(status=302)]
)
async def test_what_is_no_store_is_told_in_one_line(server: ScriptedStore, answer: Reply) -> None:
    server.on("GET /v1/health", lambda _: answer)
    client = client_of(server)
    with pytest.raises(StoreError, match=r"is not an `agl store`: check store\.url") as failure:
        await client.open()
    assert URL in str(failure.value)
    assert "\n" not in str(failure.value)
    assert server.connections[0].is_closing()
    with pytest.raises(StoreUnavailableError, match="is not open"):
        await client.health()


@pytest.mark.parametrize(
    ("token", "advice"), [(None, "set AGL_STORE_TOKEN"), ("wr0ng", "check AGL_STORE_TOKEN")]
)
async def test_a_wrong_token_is_told_without_repeating_it(
    server: ScriptedStore, token: str | None, advice: str
) -> None:
    server.on("GET /v1/workers", lambda _: refused(401, "unauthorized"))
    with pytest.raises(AccessDeniedError, match=advice) as failure:
        await client_of(server, token=token).open()
    assert "wr0ng" not in str(failure.value)


async def test_a_token_of_one_attempt_opens_the_store_too(server: ScriptedStore) -> None:
    server.on("GET /v1/workers", lambda _: refused(403, "forbidden"))
    async with client_of(server, token="narrow") as client:
        assert (await client.health())["identity"] == IDENTITY


async def test_a_store_that_is_not_there_is_waited_for_then_told(server: ScriptedStore, time: Time) -> None:
    server.down = True
    with pytest.raises(StoreUnavailableError) as failure:
        await client_of(server, time=time, retry_seconds=10.0).open()
    assert str(failure.value) == (
        f"no store answers at {URL} in 6.3 s and 7 tries: nobody listens."
        " Is it started (`agl store`), and the URL right?"
    )
    assert time.naps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])  # 5 s more would be too late


async def test_a_store_that_never_answered_is_waited_for_a_minute_one_that_did_for_an_hour(
    server: ScriptedStore, time: Time
) -> None:
    server.down = True
    client = client_of(server, time=time, retry_seconds=3600.0)
    with pytest.raises(StoreUnavailableError, match="nobody listens"):
        await client.open()
    assert time.now <= 60
    server.down = False
    async with client:
        server.down = True
        server.break_all()
        before = time.now
        with pytest.raises(StoreUnavailableError, match="nobody listens"):
            await client.get_rollout_by_id("r")
    assert 3590 < time.now - before <= 3600


async def test_opening_again_holds_on_to_the_identity(server: ScriptedStore) -> None:
    client = client_of(server)
    async with client:
        pass
    async with client:
        pass
    server.identity = "22222222"
    with pytest.raises(StoreUnavailableError, match=f"another store now: 22222222, .* on {IDENTITY}"):
        await client.open()


async def test_each_open_has_its_close(server: ScriptedStore) -> None:
    client = client_of(server)
    async with client, client:
        pass
    with pytest.raises(StoreUnavailableError, match="is not open"):
        await client.health()
    await client.close()


# Refusals.


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "not_found", NotFoundError),
        (409, "conflict", ConflictError),
        (422, "invalid", InvalidRequestError),
        (400, "bad_request", InvalidRequestError),
        (413, "too_large", InvalidRequestError),
        (403, "forbidden", AccessDeniedError),
        (401, "unauthorized", AccessDeniedError),
        (500, "failed", StoreError),
        (418, "of a newer server", StoreError),
    ],
)
async def test_a_refusal_is_raised_as_what_it_is_and_not_tried_again(
    client: HttpStore, server: ScriptedStore, time: Time, status: int, code: str, kind: type[StoreError]
) -> None:
    server.on(GET, lambda _: refused(status, code, "the very message"))
    with pytest.raises(StoreError) as failure:
        await client.get_rollout_by_id("r")
    assert type(failure.value) is kind
    assert str(failure.value) == "the very message"
    assert (len(server.asked), time.naps) == (1, [])


async def test_a_refusal_of_somebody_else_is_told_as_such(client: HttpStore, server: ScriptedStore) -> None:
    server.on(GET, lambda _: Reply(raw=b"<html>", status=403))
    with pytest.raises(StoreError, match=r"does not answer as an `agl store`.*HTTP 403"):
        await client.get_rollout_by_id("r")


async def test_another_store_at_the_address_is_named_and_not_tried_again(
    client: HttpStore, server: ScriptedStore, time: Time
) -> None:
    server.identity = "22222222"
    server.on(GET, lambda _: refused(409, "store_changed"))
    with pytest.raises(StoreUnavailableError, match=f"another store now: 22222222, .* on {IDENTITY}"):
        await client.get_rollout_by_id("r")
    assert [one.what for one in server.asked] == [GET, "GET /v1/health"]
    assert time.naps == []


# Retries.


@pytest.mark.parametrize(
    "failure",
    [
        BREAKS,
        refused(503, "unavailable"),
        refused(429, "too_many_requests"),
        Reply(raw=b"Bad Gateway", status=502),
        Reply(raw=b"", status=504),
    ],
)
async def test_an_idempotent_call_is_tried_again(
    client: HttpStore, server: ScriptedStore, time: Time, failure: Reply
) -> None:
    server.break_all()
    server.on(GET, [failure, failure, ROLLOUT])
    assert await client.get_rollout_by_id("r") == Rollout(**ROLLOUT)
    assert time.naps == pytest.approx([0.1, 0.2])


async def test_an_idle_connection_that_died_costs_no_pause(
    client: HttpStore, server: ScriptedStore, time: Time
) -> None:
    server.on(GET, [BREAKS, ROLLOUT])
    assert await client.get_rollout_by_id("r") == Rollout(**ROLLOUT)
    assert (len(server.asked), time.naps) == (2, [])


async def test_the_servers_wish_to_be_left_alone_is_followed(
    client: HttpStore, server: ScriptedStore, time: Time
) -> None:
    busy = refused(429, "too_many_requests", **{"retry-after": "7"})
    server.on(GET, [busy, ROLLOUT])
    await client.get_rollout_by_id("r")
    assert time.naps == [7.0]


async def test_a_wish_beyond_the_callers_time_is_the_end(client: HttpStore, server: ScriptedStore) -> None:
    server.on(GET, lambda _: refused(503, "unavailable", "closing down", **{"retry-after": "61"}))
    with pytest.raises(StoreUnavailableError, match="when asked once: closing down"):
        await client.get_rollout_by_id("r")


async def test_a_call_is_given_up_after_its_time_with_the_last_cause(
    client: HttpStore, server: ScriptedStore, time: Time
) -> None:
    server.on(GET, lambda _: BREAKS)
    with pytest.raises(
        StoreUnavailableError, match=r"did not do this in 5\d\.\d s and \d+ tries: .*reset by peer"
    ):
        await client.get_rollout_by_id("r")
    assert 54 < time.now < 60


async def test_the_log_tells_of_an_outage_once_and_of_its_end(
    client: HttpStore, server: ScriptedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agl.store.client")
    server.on(GET, [BREAKS, BREAKS, BREAKS, BREAKS, BREAKS, BREAKS, ROLLOUT, ROLLOUT])
    server.break_all()
    await asyncio.gather(client.get_rollout_by_id("r"), client.get_rollout_by_id("r"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert URL in caplog.text


@pytest.mark.parametrize("failure", [BREAKS, refused(503, "unavailable", "stopping")])
async def test_a_call_that_may_have_been_done_and_is_not_idempotent_is_not_tried_again(
    client: HttpStore, server: ScriptedStore, failure: Reply
) -> None:
    server.on(START, [failure])
    with pytest.raises(StoreUnavailableError, match="may or may not have done this"):
        await client.start_rollout(RolloutRequest(task=1))


async def test_such_a_call_is_tried_again_where_it_surely_was_not_done(
    client: HttpStore, server: ScriptedStore, time: Time
) -> None:
    server.on(START, [refused(429, "too_many_requests"), CLAIM])
    assert (await client.start_rollout(RolloutRequest(task=1))).attempt.attempt_id == "a"
    server.break_all()
    server.down = True
    server.on(START, [CLAIM])
    calling = asyncio.ensure_future(client.start_rollout(RolloutRequest(task=1)))
    await until(lambda: len(time.naps) == 3)
    server.down = False
    assert (await calling).rollout.rollout_id == "r"


CALLS: list[tuple[str, Any, bool]] = [
    ("POST /v1/rollouts/r/attempts", lambda c: c.start_attempt("r"), False),
    ("PATCH /v1/rollouts/r", lambda c: c.update_rollout("r", status="requeuing"), False),
    ("PATCH /v1/rollouts/r", lambda c: c.update_rollout("r", status="failed", priority=1), False),
    ("PATCH /v1/rollouts/r", lambda c: c.update_rollout("r", status="cancelled", metadata={}), True),
    ("PATCH /v1/rollouts/r", lambda c: c.update_rollout("r", priority=1), True),
    ("PATCH /v1/rollouts/r/attempts/a", lambda c: c.update_attempt("r", "a", status="failed"), True),
    ("POST /v1/rollouts/r/cancel", lambda c: c.cancel_rollout("r"), True),
    ("DELETE /v1/runs/run", lambda c: c.delete_run("run"), False),
    ("DELETE /v1/spans", lambda c: c.delete_spans(finished_before=1.0), False),
    ("POST /v1/workers", lambda c: c.register_worker("w"), True),
    ("POST /v1/runs/run/metrics", lambda c: c.add_metrics("run", 1, {"a": 1.0}), True),
]


@pytest.mark.parametrize(
    ("what", "call", "again"), CALLS, ids=[f"{what}-{again}" for what, _, again in CALLS]
)
async def test_which_calls_are_idempotent(
    client: HttpStore, server: ScriptedStore, what: str, call: Any, again: bool
) -> None:
    server.break_all()
    server.on(what, [BREAKS, refused(409, "conflict", "asked again")])
    with pytest.raises(ConflictError if again else StoreUnavailableError):
        await call(client)


@pytest.mark.parametrize(
    ("what", "call", "name"),
    [
        ("POST /v1/rollouts", lambda c: c.enqueue_rollout(RolloutRequest(task=1)), "rollout_id"),
        ("POST /v1/resources", lambda c: c.add_resources({"n": 1}), "resources_id"),
        ("POST /v1/runs", lambda c: c.add_run(name="n"), "run_id"),
    ],
)
async def test_what_is_made_has_an_id_from_here_so_that_a_repeat_is_the_same(
    client: HttpStore, server: ScriptedStore, what: str, call: Any, name: str
) -> None:
    server.on(what, [BREAKS, refused(409, "conflict")])
    with pytest.raises(ConflictError):
        await call(client)
    first, second = server.asked_for(what)
    assert first.body == second.body
    made = first.json[0] if isinstance(first.json, list) else first.json
    assert made[name].endswith("-1")


# Compression.


async def test_large_bodies_are_packed_both_ways_between_machines(server: ScriptedStore) -> None:
    bodies: list[Any] = []

    def answer(asked: Asked) -> Reply:
        assert asked.headers["accept-encoding"] == "gzip"
        unpacked = gzip.decompress(asked.body) if "content-encoding" in asked.headers else asked.body
        bodies.append((asked.headers.get("content-encoding"), orjson.loads(unpacked)[0]["task"]))
        packed = gzip.compress(orjson.dumps([{**ROLLOUT, "task": bodies[-1][1]}]))
        return Reply(raw=packed, headers={"content-encoding": "gzip"})

    server.on(START, answer)
    async with client_of(server, url="http://store.example:4747") as client:
        for size in (10, 20_000, 2_000_000):  # the last one is packed off the event loop
            assert (await client.enqueue_rollout(RolloutRequest(task="x" * size))).task == "x" * size
    assert [kind for kind, _ in bodies] == [None, "gzip", "gzip"]


# Closing.


async def test_closing_lets_calls_under_way_end(client: HttpStore, server: ScriptedStore) -> None:
    go = asyncio.Event()

    async def slowly(_: Asked) -> Any:
        await go.wait()
        return ROLLOUT

    server.on(GET, slowly)
    call = asyncio.ensure_future(client.get_rollout_by_id("r"))
    await until(lambda: server.asked)
    closing = asyncio.ensure_future(client.close())
    await asyncio.sleep(0)
    go.set()
    assert await call == Rollout(**ROLLOUT)
    await closing


async def test_closing_ends_retries(server: ScriptedStore) -> None:
    async def for_ever(_: float) -> None:
        await asyncio.get_running_loop().create_future()

    client = HttpStore(URL, dial=server.dial, sleep=for_ever)
    await client.open()
    server.on(GET, lambda _: refused(503, "unavailable", "away"))
    call = asyncio.ensure_future(client.get_rollout_by_id("r"))
    await until(lambda: server.asked_for(GET))
    await client.close()
    with pytest.raises(StoreUnavailableError, match="away"):
        await call


async def test_a_client_knows_when_the_store_was_last_out_of_reach(server: ScriptedStore, time: Time) -> None:
    async with client_of(server, time=time, retry_seconds=10.0) as client:
        assert (client.out_of_reach_at, client.is_away) == (None, False)
        time.now += 100.0
        server.down = True
        server.break_all()
        with pytest.raises(StoreUnavailableError):
            await client.health()
        at = client.out_of_reach_at
        assert at is not None
        assert 100.0 <= at <= time.now
        assert client.is_away
