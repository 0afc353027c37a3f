"""The application: every request is admitted, decoded, carried out and answered here, within its limits.

FastAPI serves the documents and what other routers add; the store's own operations are dispatched before its stack.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from agl.errors import StoreError
from agl.store import wire
from agl.store.base import LightningStore
from agl.store.server import records, rollouts, spans, traces
from agl.store.server.access import Gate, scope_message
from agl.store.server.answers import compressed, encoded, refusal, send_answer, send_chunks
from agl.store.server.bodies import BodyMemory, BodyReader, Hold, decoded, media_type_of, parameters_from
from agl.store.server.docs_page import POLICY, docs_page
from agl.store.server.metrics import RequestTimes, ServerMetrics
from agl.store.server.openapi import document
from agl.store.server.operation import JSON, Answer, Call, Headers, Operation, Send
from agl.store.server.polls import LongPolls, Receive
from agl.store.server.refusal import ClientGoneError, RefusedError
from agl.store.server.routing import RouteTable
from agl.store.server.status import Status
from agl.types.query import MAX_PAGE, ListQuery
from agl.types.tokens import require_token

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
_MEMORY_BODIES = 8  # times max_body_bytes: what all requests together may hold


class StoreApp(FastAPI):
    """The store's HTTP API."""

    def __init__(
        self,
        store: LightningStore,
        *,
        operations: Collection[Operation],
        gate: Gate,
        bodies: BodyReader,
        memory: BodyMemory,
        polls: LongPolls,
        times: RequestTimes,
        max_page: int,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(
            title="agl store",
            summary="The queue and the record of agl",
            version="1",
            docs_url=None,  # FastAPI's own page loads its scripts from another host
            redoc_url=None,
            telemetry={"tracing": False, "metrics": False},
            exception_handlers={HTTPException: _http_error},
        )
        self.add_api_route("/docs", self._docs, include_in_schema=False)
        self.polls = polls
        self._store = store
        self._operations = operations
        self._routes = RouteTable(operations)
        self._gate = gate
        self._bodies = bodies
        self._memory = memory
        self._times = times
        self._max_page = max_page
        self._monotonic = monotonic
        self._identity: bytes | None = None

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = document(super().openapi(), self._operations)
        return self.openapi_schema

    async def _docs(self) -> HTMLResponse:
        return HTMLResponse(docs_page(self.openapi()), headers={"content-security-policy": POLICY})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            path: str = scope["path"].removeprefix(scope.get("root_path", ""))
            found = self._routes.find(path)
            if found is not None:
                methods, ids = found
                operation = methods.get(scope["method"])
                if operation is None:
                    await _send_wrong_method(send, scope["method"], sorted(methods))
                    return
                call = Call(
                    store=self._store,
                    ids=ids,
                    headers=dict(scope["headers"]),
                    receive=receive,
                    polls=self.polls,
                )
                await self._serve(operation, call, scope, send)
                return
        await super().__call__(scope, receive, send)

    async def _serve(self, operation: Operation, call: Call, scope: Scope, send: Send) -> None:
        began = self._monotonic()
        hold = Hold(self._memory)
        try:
            answer = await self._answer(operation, call, scope, hold)
            if answer.status >= 400 and operation.refused is not None:
                answer = operation.refused(answer, call.headers)
            if answer.chunks is not None:
                await send_chunks(send, call.receive, answer)
            else:
                answer = await self._fitting(answer, call.headers, hold)
                await send_answer(send, answer)
        except ClientGoneError:
            return
        finally:
            hold.release()
        self._times.observe(operation.method, operation.path, answer.status, self._monotonic() - began)

    async def _fitting(self, answer: Answer, headers: Headers, hold: Hold) -> Answer:
        """The answer as it is sent; a refusal when large ones fill the memory."""
        answer = await compressed(answer, headers)
        try:
            hold.add(len(answer.body))
        except RefusedError as error:
            return refusal(error.code, str(error))
        return answer

    async def _answer(self, operation: Operation, call: Call, scope: Scope, hold: Hold) -> Answer:
        """The error boundary: whatever happens, an answer."""
        try:
            value = await self._run(operation, call, scope, hold)
            return value if isinstance(value, Answer) else Answer(body=await encoded(value))
        except RefusedError as error:
            return refusal(error.code, str(error), closes=error.closes)
        except StoreError as error:
            return refusal(wire.code_of(error), str(error))
        except asyncio.CancelledError:
            if self.polls.stopping:
                return refusal("unavailable", "the server stopped before this request was done")
            raise
        except ClientGoneError:
            raise
        except Exception:
            reference = secrets.token_hex(4)
            log.exception("%s %s failed (%s)", operation.method, operation.path, reference)
            return refusal("failed", f"the server failed on this request; its log says why under {reference}")

    async def _run(self, operation: Operation, call: Call, scope: Scope, hold: Hold) -> object:
        call.attempt = self._gate.admit(operation, call.headers, scope.get("server"))
        await self._require_identity(call.headers)
        if operation.parameters is not None:
            call.parameters = parameters_from(operation.parameters, scope["query_string"])
        elif scope["query_string"]:
            raise RefusedError("invalid", f"{operation.method} {operation.path} takes no parameters")
        if operation.body is not None:
            call.media_type = media_type_of(call.headers, operation.body)
            data = await self._bodies.read(call.headers, call.receive, hold)
            call.body = data if operation.body.kind is bytes else await decoded(data, operation.body)
        for query in (call.parameters, call.body):
            if isinstance(query, ListQuery) and query.limit > self._max_page:
                raise RefusedError("invalid", f"limit: at most {self._max_page}; follow next_cursor for more")
        if call.attempt and operation.access and not await operation.access(call, call.attempt):
            raise RefusedError("forbidden", scope_message(call.attempt))
        return await operation.run(call)

    async def _require_identity(self, headers: Headers) -> None:
        given = headers.get(wire.IDENTITY_HEADER.encode())
        if given is None:
            return
        if self._identity is None:
            self._identity = str((await self._store.health())["identity"]).encode()
        if given != self._identity:
            message = (
                f"this is store {self._identity.decode()}, not {given.decode('latin-1')[:80]}:"
                " another store serves at this address now"
            )
            raise RefusedError("store_changed", message)


def create_app(
    store: LightningStore,
    *,
    token: str | None = None,
    read_only: bool = False,
    max_body_bytes: int = 64 * 1024 * 1024,
    max_page: int = MAX_PAGE,
    body_seconds: float = 60.0,
    hosts: Collection[str] = (),
    monotonic: Callable[[], float] = time.perf_counter,
) -> StoreApp:
    """Return the HTTP API of an open store.

    Args:
        store: what is served; opened and closed by the caller.
        token: what admins send as ``Authorization: Bearer``; None asks for nothing.
        read_only: refuse what changes the store.
        max_body_bytes: the largest request body, as it comes and unpacked.
        max_page: the most items of one page.
        body_seconds: longest time until a request's body is there.
        hosts: names of this server beside the loopback ones and its address; asked for only without a token.
        monotonic: a clock for the request times.

    Raises:
        ConfigError: the token cannot be sent in a header.
    """
    require_token(token, "token")
    polls, times = LongPolls(), RequestTimes()
    status = Status(token=token, metrics=ServerMetrics(times, polls))
    return StoreApp(
        store,
        operations=(
            *rollouts.operations(),
            *spans.operations(),
            *traces.operations(),
            *records.operations(),
            *status.operations(),
        ),
        gate=Gate(token=token, read_only=read_only, hosts=hosts),
        bodies=BodyReader(max_bytes=max_body_bytes, seconds=body_seconds),
        memory=BodyMemory(max_body_bytes * _MEMORY_BODIES),
        polls=polls,
        times=times,
        max_page=max_page,
        monotonic=monotonic,
    )


async def _send_wrong_method(send: Send, method: str, methods: list[str]) -> None:
    allowed = ", ".join(methods)
    answer = refusal("method_not_allowed", f"{method} is not served here; use {allowed}")
    headers = (*answer.headers, (b"allow", allowed.encode("ascii")))
    await send_answer(send, dataclasses.replace(answer, headers=headers))


async def _http_error(_: Request, error: Exception) -> Response:
    """What FastAPI's own router refuses, in the shape of all errors."""
    assert isinstance(error, HTTPException)
    code = next((code for code, (status, _) in wire.CODES.items() if status == error.status_code), "failed")
    answer = refusal(code, f"{error.detail}: this path is not served; /docs lists those that are")
    return Response(answer.body, error.status_code, error.headers, JSON)
