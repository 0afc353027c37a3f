"""ProxyApp: the ASGI application of the proxy; each call is forwarded, recorded durably, and only then answered.

Raw ASGI, because the proxy is on the path of every sampled token: a framework's routing costs more than the call.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from agl.errors import InferenceError, StoreError, StoreUnavailableError
from agl.proxy.attempts import AttemptDirectory, llm_of_call, sampling_of
from agl.proxy.openai_chat import agent_answer, chat_from_body, checked_answer, upstream_chat
from agl.proxy.record import Call, answered_span, failed_span
from agl.proxy.refusal import CallRefusedError, error_body
from agl.proxy.repeats import Outcome, RecentCall, RecentCalls, identity_of
from agl.proxy.routes import Address, address_from_path
from agl.proxy.upstream import Upstream
from agl.proxy.writer import SpanWriter
from agl.store.base import LightningStore
from agl.types import ProxyLLM, Span

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MAX_HEADER_BYTES = 64 * 1024  # what h11 and most servers allow
_MAX_DISCARDED = (
    8  # times the body limit: how much of a refused body is read so that the client sees the refusal
)
_BODY_SECONDS = 120.0  # longest wait for a request's body; a large one over a slow line takes less
_STORE_SECONDS = 30.0  # longest wait for a span to become durable


class _ClientGoneError(Exception):
    """The client closed the connection; nobody is left to answer."""


class ProxyApp:
    """Serves the calls of all attempts of one store with one upstream."""

    def __init__(
        self,
        store: LightningStore,
        upstream: Upstream,
        *,
        token: str | None,
        max_body_bytes: int,
        upstream_timeout_seconds: float,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._authorization = b"Bearer " + token.encode() if token else None
        self._max_body_bytes = max_body_bytes
        self._upstream_timeout_seconds = upstream_timeout_seconds
        self._now_ns = now_ns
        self._attempts = AttemptDirectory(store, monotonic=monotonic)
        self._writer = SpanWriter(store, timeout_seconds=_STORE_SECONDS)
        self._recent = RecentCalls()
        self._closing = False
        self._reading: set[asyncio.Timeout] = set()

    async def close(self, *, grace_seconds: float) -> None:
        """Refuse new calls, let those in flight end within the time, cancel the rest, write what is left."""
        self._closing = True
        for limit in self._reading:
            limit.reschedule(asyncio.get_running_loop().time())
        in_flight = self._recent.in_flight()
        if in_flight:
            _, late = await asyncio.wait(in_flight, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("the proxy stops: %d calls were cancelled", len(late))
                await asyncio.wait(late)
        await self._writer.drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            return
        try:
            outcome = await self._serve(scope, receive)
        except _ClientGoneError:
            return
        except CallRefusedError as error:
            await _send(send, error.status, error.body, *_refusal_headers(error))
        except StoreUnavailableError as error:
            log.warning("a call was not answered because the store is unavailable: %s", error)
            await _send(
                send, 503, error_body(f"store unavailable: {error}", status=503, code="store_unavailable")
            )
        except Exception:
            log.exception("the proxy failed on %s", scope["path"])
            message = "the proxy failed on this request; its log says why"
            await _send(send, 500, error_body(message, status=500, code="proxy_error"))
        else:
            request_id = [(b"x-request-id", outcome.span_id.encode())] if outcome.span_id else []
            await _send(send, outcome.status, outcome.body, *request_id, content_type=outcome.content_type)

    async def _serve(self, scope: Scope, receive: Receive) -> Outcome:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MAX_HEADER_BYTES:
            raise CallRefusedError("the headers are larger than 64 KiB", status=431, code="headers_too_large")
        if scope["path"] == "/health":
            return _found({"status": "stopping" if self._closing else "ok"})
        self._check_token(headers)
        address = address_from_path(scope["method"], scope.get("raw_path") or scope["path"].encode())
        if address.endpoint == "models":
            return await self._models(address)
        body = await self._whole_body(receive, headers)
        return await self._chat(address, headers, body, receive)

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        expected = self._authorization
        if expected is not None and not hmac.compare_digest(headers.get(b"authorization", b""), expected):
            message = "this proxy needs a token: send 'Authorization: Bearer <token>' (the api_key of the LLM resource)"
            raise CallRefusedError(message, status=401, code="invalid_api_key")

    async def _models(self, address: Address) -> Outcome:
        resources = await self._attempts.resources_for_call(address.rollout_id, address.attempt_id)
        names = {self._upstream.model: None}
        if resources is not None:
            names.update(
                (llm.model, None) for llm in resources.resources.values() if isinstance(llm, ProxyLLM)
            )
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "agl"} for name in names]
        return _found({"object": "list", "data": models})

    async def _whole_body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """Return the body if it comes in time and before the proxy stops."""
        try:
            async with asyncio.timeout(_BODY_SECONDS) as limit:
                self._reading.add(limit)
                try:
                    body = await self._read_body(receive, headers)
                finally:
                    self._reading.remove(limit)
        except TimeoutError as error:
            if not self._closing:
                message = f"the request body did not arrive within {_BODY_SECONDS:g} s"
                raise CallRefusedError(message, status=408, code="request_timeout") from error
        else:
            if not self._closing:
                return body
        raise CallRefusedError("the proxy is stopping", status=503, code="stopping")

    async def _read_body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """Return the whole body. One over the limit is read to its end, unkept, so that the client sees the refusal."""
        limit = self._max_body_bytes
        declared = headers.get(b"content-length", b"0")
        parts: list[bytes] = []
        size, too_large = 0, declared.isdigit() and int(declared) > limit
        more = True
        while more and size <= limit * _MAX_DISCARDED:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            too_large = too_large or size > limit
            if too_large:
                parts.clear()
            else:
                parts.append(part)
        if too_large:
            text = f"the request body is larger than {limit} bytes (setting max_body_bytes of the proxy)"
            raise CallRefusedError(text, status=413, code="body_too_large")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _chat(
        self, address: Address, headers: dict[bytes, bytes], body: bytes, receive: Receive
    ) -> Outcome:
        chat = chat_from_body(body)
        traceparent = headers.get(b"traceparent", b"").decode("latin-1") or None
        identity = identity_of(address, headers, body)
        recent = self._recent.claim(identity, lambda call: self._perform(call, address, chat, traceparent))
        is_repeat = recent.outcome.done()
        gone = asyncio.create_task(_disconnect(receive))
        try:
            answered = await recent.wait(gone)
        finally:
            gone.cancel()
        if not answered:
            raise _ClientGoneError
        if recent.outcome.cancelled():
            raise CallRefusedError(
                "the call was cancelled: the proxy is stopping", status=503, code="stopping"
            )
        outcome = recent.outcome.result()
        if is_repeat:
            await self._record(outcome)
        if outcome.unrecorded is not None:
            raise StoreUnavailableError("the call was answered but could not be recorded; repeat it")
        return outcome

    async def _perform(
        self, recent: RecentCall, address: Address, chat: dict[str, Any], traceparent: str | None
    ) -> Outcome:
        """Carry out one call: look up, ask, record."""
        resources = await self._attempts.resources_for_call(address.rollout_id, address.attempt_id)
        llm = llm_of_call(resources, chat["model"])
        seed = self._attempts.seed_of_next_call(address.rollout_id, address.attempt_id)
        asked = chat if seed is None or chat.get("seed") is not None else {**chat, "seed": seed}
        call = Call(
            address=address,
            request=upstream_chat(asked if llm is None else {**asked, "model": llm.model}, sampling_of(llm)),
            span_id=os.urandom(8).hex(),
            traceparent=traceparent,
            started_ns=self._now_ns(),
            policy_version=llm.policy_version if isinstance(llm, ProxyLLM) else None,
        )
        try:
            outcome = await self._ask(call, chat)
        except asyncio.CancelledError:
            await self._record(
                self._failure(
                    call,
                    "cancelled",
                    "cancelled before the answer: the client left or the proxy stopped",
                    status=499,
                )
            )
            raise
        recent.sampled = True
        await self._record(outcome)
        return outcome

    async def _ask(self, call: Call, chat: dict[str, Any]) -> Outcome:
        """Ask the upstream; the outcome holds the span, not recorded yet."""
        try:
            async with asyncio.timeout(self._upstream_timeout_seconds):
                answer = checked_answer(await self._upstream.complete_chat(call.request))
            span = answered_span(call, answer, ended_ns=self._now_ns())
            body = orjson.dumps(agent_answer(answer, chat))
        except InferenceError as error:
            return self._refused_upstream(call, error)
        except TimeoutError:
            message = f"the model did not answer within {self._upstream_timeout_seconds:g} s"
            return self._failure(call, "timeout", message, status=504)
        except Exception as error:
            log.exception("the upstream failed on a call of rollout %s", call.address.rollout_id)
            message = "the model server failed on this request; the proxy's log says why"
            return self._failure(call, type(error).__name__, message, status=500)
        return Outcome(status=200, body=body, span_id=span.span_id, unrecorded=span)

    def _refused_upstream(self, call: Call, error: InferenceError) -> Outcome:
        """The upstream's own status and body, unchanged, when it gave one."""
        status = error.status if 400 <= error.status <= 599 else 502
        outcome = self._failure(call, str(status), str(error), status=status)
        if isinstance(error.body, str | bytes):
            outcome.body = error.body.encode() if isinstance(error.body, str) else error.body
            outcome.content_type = b"text/plain; charset=utf-8"
        elif error.body is not None:
            outcome.body = orjson.dumps(error.body)
        return outcome

    def _failure(self, call: Call, error_type: str, message: str, *, status: int) -> Outcome:
        span = failed_span(call, error_type=error_type, description=message, ended_ns=self._now_ns())
        body = error_body(message, status=status, code=error_type)
        return Outcome(status=status, body=body, span_id=span.span_id, unrecorded=span)

    async def _record(self, outcome: Outcome) -> None:
        """Make the outcome's span durable; it stays ``unrecorded`` when the store does not take it."""
        span: Span | None = outcome.unrecorded
        if span is None:
            return
        try:
            await self._writer.add(span)
        except StoreError as error:
            log.warning("call %s of rollout %s is not recorded: %s", span.span_id, span.rollout_id, error)
        else:
            outcome.unrecorded = None


async def _disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _found(value: object) -> Outcome:
    return Outcome(status=200, body=orjson.dumps(value), span_id="")


def _refusal_headers(error: CallRefusedError) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = []
    if error.retry is not None:
        headers.append((b"x-should-retry", b"true" if error.retry else b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 413:
        headers.append((b"connection", b"close"))
    return headers


async def _send(
    send: Send,
    status: int,
    body: bytes,
    *headers: tuple[bytes, bytes],
    content_type: bytes = b"application/json",
) -> None:
    fixed = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})
