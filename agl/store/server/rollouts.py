"""Operations on rollouts and attempts."""

from __future__ import annotations

from typing import Any

from agl.store import wire
from agl.store.server.operation import Body, Call, Operation
from agl.store.server.refusal import RefusedError
from agl.store.wire import ClaimedRollout
from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptQuery,
    Page,
    Rollout,
    RolloutQuery,
    RolloutRequest,
)
from agl.types.query import ListQuery
from agl.types.record import Identifier, Record


class StartNow(Record):
    """Parameters of POST /v1/rollouts."""

    start: bool = False
    """Make the first attempt at once, past the queue; the answer holds it."""
    worker_id: Identifier | None = None
    """Who executes it; with ``start`` only."""


class AttemptList(ListQuery):
    """Parameters of GET /v1/rollouts/{rollout_id}/attempts."""

    worker_id: str | None = None
    status: tuple[str, ...] | None = None


class Waited(Record):
    """What a wait answers: the rollouts that are terminal, in the order asked for."""

    items: tuple[Rollout, ...]


class TakenBack(Record):
    """What the undoing of a dequeue answers."""

    rollout_ids: tuple[str, ...]


Claimed = ClaimedRollout | list[ClaimedRollout] | None


def operations() -> tuple[Operation, ...]:
    """Return the operations of this module."""
    return (*_queue(), *_rollouts(), *_attempts())


def _queue() -> tuple[Operation, ...]:
    return (
        Operation(
            method="POST",
            path="/v1/rollouts/dequeue",
            run=_dequeue,
            summary="Claim rollouts, waiting for a first one. Without limit: one or null; with it: a list",
            body=Body(kind=wire.Dequeue),
            answers=Claimed,
            writes=True,
        ),
        Operation(
            method="GET",
            path="/v1/rollouts/dequeue",
            run=_dequeue,
            summary="Claim rollouts, for clients that can only GET",
            parameters=wire.Dequeue,
            answers=Claimed,
            writes=True,
        ),
        Operation(
            method="POST",
            path="/v1/rollouts/dequeue/undo",
            run=_undo_dequeue,
            summary="Take back a dequeue whose answer got lost",
            body=Body(kind=wire.UndoDequeue),
            answers=TakenBack,
            writes=True,
        ),
        Operation(
            method="POST",
            path="/v1/rollouts/wait",
            run=_wait,
            summary="Wait until rollouts, or so many of them, are terminal; answers those that are",
            body=Body(kind=wire.Wait),
            answers=Waited,
            may=("not_found",),
        ),
    )


def _rollouts() -> tuple[Operation, ...]:
    return (
        Operation(
            method="POST",
            path="/v1/rollouts",
            run=_enqueue,
            summary="Enqueue one rollout or a list; with start=true make one with its first attempt",
            body=Body(kind=RolloutRequest, many=True),
            parameters=StartNow,
            answers=Rollout | ClaimedRollout | list[Rollout],
            writes=True,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="GET",
            path="/v1/rollouts",
            run=_query_rollouts,
            summary="List rollouts",
            parameters=RolloutQuery,
            answers=Page[Rollout],
        ),
        Operation(
            method="POST",
            path="/v1/rollouts/query",
            run=_query_rollouts,
            summary="List rollouts, by a query that is too long for a URL",
            body=Body(kind=RolloutQuery),
            answers=Page[Rollout],
        ),
        Operation(
            method="GET",
            path="/v1/rollouts/{rollout_id}",
            run=_rollout,
            summary="One rollout",
            answers=Rollout,
            access=names_own_rollout,
            may=("not_found",),
        ),
        Operation(
            method="PATCH",
            path="/v1/rollouts/{rollout_id}",
            run=_update_rollout,
            summary="Change what is given of a rollout",
            body=Body(kind=wire.RolloutUpdate),
            answers=Rollout,
            writes=True,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="POST",
            path="/v1/rollouts/{rollout_id}/cancel",
            run=_cancel,
            summary="Cancel a rollout and its attempt",
            answers=Rollout,
            writes=True,
            may=("not_found", "conflict"),
        ),
    )


def _attempts() -> tuple[Operation, ...]:
    return (
        Operation(
            method="PATCH",
            path="/v1/rollouts/{rollout_id}/attempts/{attempt_id}",
            run=_update_attempt,
            summary="Report on an attempt; the rollout follows",
            body=Body(kind=wire.AttemptUpdate),
            answers=ClaimedRollout,
            writes=True,
            access=_names_own_attempt,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="POST",
            path="/v1/rollouts/{rollout_id}/attempts",
            run=_start_attempt,
            summary="Open a new attempt past the queue",
            body=Body(kind=wire.Start, required=False),
            answers=ClaimedRollout,
            writes=True,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="GET",
            path="/v1/rollouts/{rollout_id}/attempts",
            run=_attempts_of_rollout,
            summary="List a rollout's attempts",
            parameters=AttemptList,
            answers=Page[Attempt],
            access=names_own_rollout,
            may=("not_found",),
        ),
        Operation(
            method="GET",
            path="/v1/rollouts/{rollout_id}/attempts/latest",
            run=_latest_attempt,
            summary="A rollout's newest attempt, or null",
            answers=Attempt | None,
            access=names_own_rollout,
            may=("not_found",),
        ),
        Operation(
            method="GET",
            path="/v1/attempts",
            run=_query_attempts,
            summary="List attempts",
            parameters=AttemptQuery,
            answers=Page[Attempt],
            may=("not_found",),
        ),
    )


async def names_own_rollout(call: Call, attempt: tuple[str, str]) -> bool:
    """Whether the path's rollout is the scoped token's."""
    return call.ids[0] == attempt[0]


async def _names_own_attempt(call: Call, attempt: tuple[str, str]) -> bool:
    return call.ids == attempt


def claimed_fields(held: AttemptedRollout) -> dict[str, Any]:
    """Return the fields of the wire's ClaimedRollout; making the record itself costs more than the rest."""
    return {**held.rollout.__dict__, "attempt": held.attempt}


async def _dequeue(call: Call) -> object:
    wanted: wire.Dequeue = call.body or call.parameters
    claim = call.store.dequeue_many_rollouts(
        worker_id=wanted.worker_id,
        limit=wanted.limit or 1,
        wait_seconds=wanted.wait_seconds,
        request_id=wanted.request_id,
        run_id=wanted.run_id,
    )
    if wanted.wait_seconds:
        held = await call.polls.wait(call.receive, claim, otherwise=[])
    else:
        held = await claim
    if wanted.limit is None:
        return claimed_fields(held[0]) if held else None
    return [claimed_fields(one) for one in held]


async def _undo_dequeue(call: Call) -> object:
    undo: wire.UndoDequeue = call.body
    ids = await call.store.undo_dequeue(worker_id=undo.worker_id, request_id=undo.request_id)
    return {"rollout_ids": ids}


async def _wait(call: Call) -> object:
    wanted: wire.Wait = call.body
    found = None
    if wanted.timeout_seconds:
        wait = call.store.wait_for_rollouts(
            wanted.rollout_ids, timeout_seconds=wanted.timeout_seconds, at_least=wanted.at_least
        )
        found = await call.polls.wait(call.receive, wait, otherwise=None)
    if found is None:
        found = await call.store.wait_for_rollouts(wanted.rollout_ids, timeout_seconds=0.0)
    return {"items": found}


async def _enqueue(call: Call) -> object:
    start: StartNow = call.parameters
    body: RolloutRequest | list[RolloutRequest] = call.body
    if not start.start:
        if start.worker_id is not None:
            raise RefusedError("invalid", "worker_id: goes with start=true only")
        many = body if isinstance(body, list) else [body]
        rollouts = await call.store.enqueue_many_rollouts(many)
        return rollouts if isinstance(body, list) else rollouts[0]
    if isinstance(body, list):
        raise RefusedError("invalid", "the body: start=true takes one rollout, not a list")
    return claimed_fields(await call.store.start_rollout(body, worker_id=start.worker_id))


async def _query_rollouts(call: Call) -> object:
    return await call.store.query_rollouts(call.body or call.parameters)


async def _rollout(call: Call) -> object:
    return await call.store.get_rollout_by_id(call.ids[0])


async def _update_rollout(call: Call) -> object:
    update: wire.RolloutUpdate = call.body
    return await call.store.update_rollout(call.ids[0], **update.__dict__)


async def _cancel(call: Call) -> object:
    return await call.store.cancel_rollout(call.ids[0])


async def _update_attempt(call: Call) -> object:
    report: wire.AttemptUpdate = call.body
    return claimed_fields(await call.store.update_attempt(*call.ids, **report.__dict__))


async def _start_attempt(call: Call) -> object:
    start: wire.Start = call.body
    return claimed_fields(await call.store.start_attempt(call.ids[0], worker_id=start.worker_id))


async def _attempts_of_rollout(call: Call) -> object:
    wanted: AttemptList = call.parameters
    return await call.store.query_attempts(AttemptQuery(rollout_id=call.ids[0], **wanted.__dict__))


async def _latest_attempt(call: Call) -> object:
    return await call.store.get_latest_attempt(call.ids[0])


async def _query_attempts(call: Call) -> object:
    return await call.store.query_attempts(call.parameters)
