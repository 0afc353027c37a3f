"""Dequeue and waits over the wire: polls in a chain, and nothing stranded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted_store import BREAKS, Asked, Reply, ScriptedStore, Time, refused, until

from agl.errors import InvalidRequestError, NotFoundError, StoreUnavailableError
from agl.store import wire
from agl.store.client import HttpStore
from agl.types import AttemptQuery, ErrorInfo, RolloutQuery, RolloutRequest

DEQUEUE, UNDO, WAIT = "POST /v1/rollouts/dequeue", "POST /v1/rollouts/dequeue/undo", "POST /v1/rollouts/wait"
CLAIM = {
    "rollout_id": "r",
    "task": 1,
    "created_at": 5.0,
    "attempt": {
        "attempt_id": "a", "rollout_id": "r", "sequence_id": 1, "started_at": 1.0, "last_heartbeat_at": 1.0,
    },
}  # fmt: skip


def done(*rollout_ids: str) -> dict[str, Any]:
    items = [{"rollout_id": one, "task": 1, "created_at": 5.0, "status": "succeeded"} for one in rollout_ids]
    return {"items": items}


async def never(asked: Asked) -> Reply:
    return await asyncio.get_running_loop().create_future()


async def until_asked(server: ScriptedStore, what: str) -> None:
    await until(lambda: server.asked_for(what))


# Dequeue.


async def test_a_long_dequeue_is_a_chain_of_polls_of_one_request(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(DEQUEUE, [[], [], [CLAIM]])
    held = await client.dequeue_rollout(worker_id="w", wait_seconds=3600, run_id="run")
    assert held is not None
    assert (held.rollout.rollout_id, held.attempt.attempt_id) == ("r", "a")
    polls = [one.json for one in server.asked_for(DEQUEUE)]
    asked = {"worker_id": "w", "request_id": "rq-1", "limit": 1, "run_id": "run", "wait_seconds": 30.0}
    assert polls == [asked] * 3


async def test_a_dequeue_that_does_not_wait_is_one_request(client: HttpStore, server: ScriptedStore) -> None:
    server.on(DEQUEUE, [[], []])
    assert await client.dequeue_many_rollouts(worker_id="w", limit=3, request_id="mine") == []
    assert await client.dequeue_rollout(worker_id="w") is None
    assert [one.json for one in server.asked_for(DEQUEUE)] == [
        {"worker_id": "w", "request_id": "mine", "limit": 3},
        {"worker_id": "w", "request_id": "rq-1", "limit": 1},
    ]


async def test_a_poll_whose_answer_is_lost_is_asked_again_without_waiting_then_goes_on(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(DEQUEUE, [BREAKS, refused(503, "unavailable"), [], [CLAIM]])
    assert await client.dequeue_rollout(worker_id="w", wait_seconds=3600) is not None
    polls = [one.json for one in server.asked_for(DEQUEUE)]
    assert {poll["request_id"] for poll in polls} == {"rq-1"}
    assert [poll.get("wait_seconds") for poll in polls] == [30.0, None, None, 30.0]


async def test_a_cancelled_dequeue_ends_its_connection_and_is_taken_back(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(DEQUEUE, never)
    server.on(UNDO, lambda _: {"rollout_ids": ["r"]})
    call = asyncio.ensure_future(client.dequeue_rollout(worker_id="w", wait_seconds=60, request_id="q"))
    await until_asked(server, DEQUEUE)
    call.cancel()
    await asyncio.wait((call,))
    assert call.cancelled()
    assert server.connections[0].is_closing()
    await until_asked(server, UNDO)
    assert [one.json for one in server.asked_for(UNDO)] == [{"worker_id": "w", "request_id": "q"}]


async def test_closing_waits_until_cancelled_dequeues_are_taken_back(
    client: HttpStore, server: ScriptedStore
) -> None:
    undone: list[str] = []

    async def slowly(asked: Asked) -> Any:
        for _ in range(20):
            await asyncio.sleep(0)
        undone.append(asked.json["request_id"])
        return {"rollout_ids": []}

    server.on(DEQUEUE, never)
    server.on(UNDO, slowly)
    calls = [asyncio.ensure_future(client.dequeue_rollout(worker_id="w", wait_seconds=60)) for _ in range(3)]
    await until_asked(server, DEQUEUE)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await client.close()
    assert sorted(undone) == ["rq-1", "rq-2", "rq-3"]


async def test_a_repeat_of_a_cancelled_dequeue_waits_for_its_undo(
    client: HttpStore, server: ScriptedStore
) -> None:
    go = asyncio.Event()

    async def slowly(_: Asked) -> Any:
        await go.wait()
        return {"rollout_ids": []}

    server.on(DEQUEUE, never)
    server.on(UNDO, slowly)
    first = asyncio.ensure_future(client.dequeue_rollout(worker_id="w", wait_seconds=60, request_id="q"))
    await until_asked(server, DEQUEUE)
    first.cancel()
    await asyncio.wait((first,))
    server.on(DEQUEUE, lambda _: [CLAIM])
    again = asyncio.ensure_future(client.dequeue_rollout(worker_id="w", request_id="q"))
    await until_asked(server, UNDO)
    assert len(server.asked_for(DEQUEUE)) == 1
    go.set()
    assert await again is not None


async def test_a_store_that_stays_away_is_told_and_a_request_that_nobody_knows_taken_back(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(DEQUEUE, lambda _: BREAKS)
    server.on(UNDO, lambda _: {"rollout_ids": []})
    with pytest.raises(StoreUnavailableError):
        await client.dequeue_rollout(worker_id="w", wait_seconds=60)
    await until_asked(server, UNDO)
    with pytest.raises(StoreUnavailableError):
        await client.dequeue_rollout(worker_id="w", wait_seconds=60, request_id="mine")
    await client.close()
    assert [one.json["request_id"] for one in server.asked_for(UNDO)] == [
        "rq-1"
    ]  # "mine" may be asked for again


async def test_closing_lets_a_waiting_dequeue_go_with_nothing(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(DEQUEUE, never)
    server.on(UNDO, lambda _: {"rollout_ids": []})
    call = asyncio.ensure_future(client.dequeue_many_rollouts(worker_id="w", wait_seconds=60))
    await until_asked(server, DEQUEUE)
    await client.close()
    assert await call == []
    assert len(server.asked_for(UNDO)) == 1


async def test_more_than_a_server_hands_out_at_once_is_not_asked_for(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(DEQUEUE, lambda _: [])
    await client.dequeue_many_rollouts(worker_id="w", limit=wire.MAX_BATCH + 1)
    assert server.asked_for(DEQUEUE)[0].json["limit"] == wire.MAX_BATCH


@pytest.mark.parametrize("wait", [-1.0, float("nan")])
async def test_a_wait_that_is_no_time_is_refused(client: HttpStore, wait: float) -> None:
    with pytest.raises(InvalidRequestError):
        await client.dequeue_rollout(worker_id="w", wait_seconds=wait)


# Waiting for the end.


async def test_a_long_wait_asks_only_for_what_is_missing(client: HttpStore, server: ScriptedStore) -> None:
    server.on(WAIT, [done("b"), BREAKS, done(), done("a", "c")])
    found = await client.wait_for_rollouts(["a", "b", "a", "c"])
    assert [one.rollout_id for one in found] == ["a", "b", "a", "c"]
    asked = [(one.json["rollout_ids"], one.json.get("timeout_seconds")) for one in server.asked_for(WAIT)]
    assert asked == [(["a", "b", "c"], 30.0), (["a", "c"], 30.0), (["a", "c"], None), (["a", "c"], 30.0)]


async def test_a_wait_that_does_not_wait_is_one_request(client: HttpStore, server: ScriptedStore) -> None:
    server.on(WAIT, [done("b")])
    assert [one.rollout_id for one in await client.wait_for_rollouts(["a", "b"], timeout_seconds=0)] == ["b"]
    assert await client.wait_for_rollouts([]) == []
    assert len(server.asked) == 1


async def test_more_than_one_request_holds_is_looked_at_whole_first(
    client: HttpStore, server: ScriptedStore
) -> None:
    ids = [f"r{number}" for number in range(wire.MAX_BATCH + 2)]
    server.on(WAIT, [done(*ids[: wire.MAX_BATCH]), done(ids[-1]), done(ids[-2])])
    assert [one.rollout_id for one in await client.wait_for_rollouts(ids)] == ids
    assert [len(one.json["rollout_ids"]) for one in server.asked_for(WAIT)] == [wire.MAX_BATCH, 2, 1]


async def test_a_wait_for_some_says_how_many_are_still_wanted(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on(WAIT, [done("b"), done("d")])
    found = await client.wait_for_rollouts(["a", "b", "c", "d"], at_least=2)
    assert [one.rollout_id for one in found] == ["b", "d"]
    asked = [(one.json["rollout_ids"], one.json["at_least"]) for one in server.asked_for(WAIT)]
    assert asked == [(["a", "b", "c", "d"], 2), (["a", "c", "d"], 1)]


async def test_a_wait_for_some_of_more_than_one_request_holds_looks_at_the_others_too(
    client: HttpStore, server: ScriptedStore
) -> None:
    ids = [f"r{number}" for number in range(wire.MAX_BATCH + 2)]
    server.on(WAIT, [done(), done(), done("r7"), done(), done(ids[-1])])
    found = await client.wait_for_rollouts(ids, at_least=2)
    assert [one.rollout_id for one in found] == ["r7", ids[-1]]
    asked = [
        (len(one.json["rollout_ids"]), one.json.get("timeout_seconds")) for one in server.asked_for(WAIT)
    ]
    assert asked == [
        (wire.MAX_BATCH, None),
        (2, None),
        (wire.MAX_BATCH, 1.0),
        (wire.MAX_BATCH, None),
        (1, None),
    ]


async def test_an_unknown_rollout_ends_the_wait(client: HttpStore, server: ScriptedStore) -> None:
    server.on(WAIT, [refused(404, "not_found", "no rollout has the id 'x'")])
    with pytest.raises(NotFoundError, match="'x'"):
        await client.wait_for_rollouts(["x"])


async def test_closing_lets_a_wait_go_with_what_is_there(client: HttpStore, server: ScriptedStore) -> None:
    def answer(asked: Asked) -> Any:
        return never(asked) if "timeout_seconds" in asked.json else done("b")

    server.on(WAIT, answer)
    call = asyncio.ensure_future(client.wait_for_rollouts(["a", "b"]))
    await until_asked(server, WAIT)
    await client.close()
    assert [one.rollout_id for one in await call] == ["b"]


# Bodies and paths.


async def test_a_long_enqueue_goes_in_parts_in_order(client: HttpStore, server: ScriptedStore) -> None:
    server.on("POST /v1/rollouts", lambda asked: [{**one, "created_at": 1.0} for one in asked.json])
    requests = [RolloutRequest(task=number) for number in range(wire.MAX_BATCH + 1)]
    rollouts = await client.enqueue_many_rollouts(requests)
    assert [one.task for one in rollouts] == list(range(wire.MAX_BATCH + 1))
    assert [len(one.json) for one in server.asked] == [wire.MAX_BATCH, 1]
    assert await client.enqueue_many_rollouts([]) == []


async def test_one_bad_rollout_of_a_list_sends_nothing(client: HttpStore, server: ScriptedStore) -> None:
    with pytest.raises(InvalidRequestError, match="not JSON"):
        await client.enqueue_many_rollouts([RolloutRequest(task=1), RolloutRequest(task={1})])
    assert server.asked == []


async def test_a_report_names_what_is_given_and_is_checked_here(
    client: HttpStore, server: ScriptedStore
) -> None:
    what = "PATCH /v1/rollouts/r%201/attempts/a"
    server.on(what, lambda _: CLAIM)
    error = ErrorInfo(cause="c", message="m")
    await client.update_attempt(
        "r 1", "a", status="failed", reward=1, reward_dimensions={"x": 2}, error=error
    )
    await client.update_attempt("r 1", "a")
    assert [one.json for one in server.asked] == [
        {
            "status": "failed",
            "reward": 1.0,
            "reward_dimensions": {"x": 2.0},
            "error": {"cause": "c", "message": "m", "traceback": None},
        },
        {},
    ]
    with pytest.raises(InvalidRequestError, match="finite"):
        await client.update_attempt("r", "a", status="succeeded", reward=float("nan"))
    assert len(server.asked) == 2


async def test_a_query_by_many_ids_or_none_travels_in_a_body(
    client: HttpStore, server: ScriptedStore
) -> None:
    page = {"items": [], "next_cursor": "c"}
    server.on("GET /v1/rollouts", lambda _: page)
    server.on("POST /v1/rollouts/query", lambda _: page)
    assert (await client.query_rollouts(RolloutQuery(rollout_ids=("a", "b")))).next_cursor == "c"
    many = tuple(str(number) for number in range(51))
    await client.query_rollouts(RolloutQuery(rollout_ids=many, cursor="d"))
    await client.query_rollouts(RolloutQuery(status=()))
    assert server.asked[0].target == (
        "/v1/rollouts?limit=1000&order=asc&rollout_ids=a&rollout_ids=b&sort_by=created_at"
    )
    sent = [one.json for one in server.asked[1:]]
    assert (sent[0]["rollout_ids"], sent[0]["cursor"], sent[1]["status"]) == (list(many), "d", [])


async def test_attempts_of_no_status_are_none(client: HttpStore, server: ScriptedStore) -> None:
    assert (await client.query_attempts(AttemptQuery(status=()))).items == []
    assert server.asked == []
    await client.close()
    with pytest.raises(StoreUnavailableError):
        await client.query_attempts(AttemptQuery(status=()))


async def test_pauses_of_a_chain_are_short(client: HttpStore, server: ScriptedStore, time: Time) -> None:
    server.on(DEQUEUE, [[], [], [CLAIM]])
    await client.dequeue_rollout(worker_id="w", wait_seconds=3600)
    assert time.naps == [0.25, 0.25]  # both polls were answered before their time
