"""Operations on spans."""

from __future__ import annotations

from typing import Literal

from agl.store import wire
from agl.store.server.operation import Body, Call, Operation
from agl.store.server.plain_spans import plain_span
from agl.types import Page, Span, SpanQuery
from agl.types.record import Record


class SpanAnswer(Record):
    """Parameters of POST /v1/spans."""

    answer: Literal["spans", "ids"] = "spans"
    """``ids`` answers the sequence ids, and only those spans that are stored otherwise than sent, which is cheaper."""


class SequenceIds(Record):
    """Sequence ids, in the order of the request."""

    sequence_ids: tuple[int | None, ...]


class OldSpans(Record):
    """Parameters of DELETE /v1/spans."""

    finished_before: float
    """Unix seconds: spans of rollouts that are terminal since before."""
    run_id: str | None = None


class Deleted(Record):
    """How many spans are gone."""

    deleted: int


def operations() -> tuple[Operation, ...]:
    """Return the operations of this module."""
    return (
        Operation(
            method="POST",
            path="/v1/spans",
            run=_add_spans,
            summary="Store one span or a list, all or none",
            body=Body(kind=Span, many=True, plain=plain_span),
            parameters=SpanAnswer,
            answers=Span | list[Span] | wire.StoredSpans,
            writes=True,
            access=_are_own_spans,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="POST",
            path="/v1/spans/sequence",
            run=_sequence_ids,
            summary="Allocate the next sequence id of each attempt",
            body=Body(kind=wire.Sequence),
            answers=SequenceIds,
            writes=True,
            access=_are_own_sequences,
            may=("not_found",),
        ),
        Operation(
            method="GET",
            path="/v1/spans",
            run=_query_spans,
            summary="List spans",
            parameters=SpanQuery,
            answers=Page[Span],
            access=_asks_own_spans,
            may=("not_found",),
        ),
        Operation(
            method="DELETE",
            path="/v1/spans",
            run=_delete_spans,
            summary="Delete the spans of rollouts that finished before a time",
            parameters=OldSpans,
            answers=Deleted,
            writes=True,
        ),
    )


async def _are_own_spans(call: Call, attempt: tuple[str, str]) -> bool:
    return all((span.rollout_id, span.attempt_id) == attempt for span in _spans(call))


async def _are_own_sequences(call: Call, attempt: tuple[str, str]) -> bool:
    wanted: wire.Sequence = call.body
    return all((key.rollout_id, key.attempt_id) == attempt for key in wanted.attempts)


async def _asks_own_spans(call: Call, attempt: tuple[str, str]) -> bool:
    query: SpanQuery = call.parameters
    return (query.rollout_id, query.attempt_id) == attempt


async def _add_spans(call: Call) -> object:
    wanted: SpanAnswer = call.parameters
    sent = _spans(call)
    spans = await call.store.add_many_spans(sent)
    if wanted.answer == "ids":
        return wire.StoredSpans.of(sent, spans)
    return spans if isinstance(call.body, list) else spans[0]


def _spans(call: Call) -> list[Span]:
    body: Span | list[Span] = call.body
    return body if isinstance(body, list) else [body]


async def _sequence_ids(call: Call) -> object:
    wanted: wire.Sequence = call.body
    keys = [(key.rollout_id, key.attempt_id) for key in wanted.attempts]
    return {"sequence_ids": await call.store.get_many_span_sequence_ids(keys)}


async def _query_spans(call: Call) -> object:
    return await call.store.query_spans(call.parameters)


async def _delete_spans(call: Call) -> object:
    wanted: OldSpans = call.parameters
    return {
        "deleted": await call.store.delete_spans(finished_before=wanted.finished_before, run_id=wanted.run_id)
    }
