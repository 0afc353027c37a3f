"""POST /v1/traces: OpenTelemetry exporters deliver here, in OTLP/HTTP's two encodings."""

from __future__ import annotations

import asyncio
import dataclasses

import orjson
from pydantic import ConfigDict

from agl.store.otlp.answers import PROTOBUF, failure, media_type, success
from agl.store.otlp.binary_body import read_binary
from agl.store.otlp.ingestion import store_spans
from agl.store.otlp.json_body import read_json
from agl.store.otlp.owner import Owner, UnreadableOwnerError, owner_from_headers
from agl.store.otlp.reading import LargeRequestError, MalformedRequestError, SpanReading
from agl.store.server.bodies import require_few_values
from agl.store.server.operation import JSON, Answer, Body, Call, Headers, Operation
from agl.store.server.refusal import RefusedError
from agl.types.record import Record

_THREAD_BYTES = 64 * 1024  # reading more than this keeps other requests waiting


class ExportRequest(Record):
    """ExportTraceServiceRequest, for the document; unknown fields are ignored everywhere."""

    model_config = ConfigDict(extra="allow")

    resourceSpans: tuple[dict[str, object], ...] = ()  # noqa: N815 - OTLP's name


class PartialSuccess(Record):
    """How many spans were not kept, and why."""

    rejectedSpans: str  # noqa: N815 - OTLP's name
    errorMessage: str  # noqa: N815 - OTLP's name


class ExportAnswer(Record):
    """ExportTraceServiceResponse; without ``partialSuccess`` all spans were kept."""

    partialSuccess: PartialSuccess | None = None  # noqa: N815 - OTLP's name


def operations() -> tuple[Operation, ...]:
    """Return the operations of this module."""
    return (
        Operation(
            method="POST",
            path="/v1/traces",
            run=_export,
            summary="OTLP/HTTP: store spans of OpenTelemetry; those that cannot be kept are counted in the answer",
            body=Body(kind=bytes, json_kind=ExportRequest, media_types=(PROTOBUF, JSON)),
            answers=ExportAnswer,
            writes=True,
            access=_anything,
            refused=_as_status,
        ),
    )


async def _anything(call: Call, attempt: tuple[str, str]) -> bool:
    """Spans of other attempts are refused one by one."""
    del call, attempt
    return True


async def _export(call: Call) -> Answer:
    body: bytes = call.body
    try:
        named = owner_from_headers(
            {key.decode("latin-1"): value.decode("latin-1") for key, value in call.headers.items()}
        )
        reading = SpanReading(named=named, allowed=None if call.attempt is None else Owner(*call.attempt))
        read = read_binary if call.media_type == PROTOBUF else read_json
        if call.media_type == JSON:
            require_few_values(body)
        if len(body) > _THREAD_BYTES:
            await asyncio.to_thread(read, body, reading)
        else:
            read(body, reading)
    except (MalformedRequestError, UnreadableOwnerError) as error:
        raise RefusedError("bad_request", str(error)) from error
    except LargeRequestError as error:
        raise RefusedError("too_large", str(error)) from error
    rejected = reading.rejected + await store_spans(call.store, reading.spans)
    return Answer(body=success(call.media_type, rejected), media_type=call.media_type)


def _as_status(answer: Answer, headers: Headers) -> Answer:
    """The refusal as OTLP's clients read it: a google.rpc.Status in the encoding of the request."""
    encoding = media_type(headers.get(b"content-type", b"").decode("latin-1")) or JSON
    message = orjson.loads(answer.body)["error"]["message"]
    return dataclasses.replace(answer, body=failure(encoding, answer.status, message), media_type=encoding)
