"""ProxyApp: the ASGI application of the proxy; each call is forwarded, recorded durably, and only then answered.

Raw ASGI, because the proxy is on the path of every sampled token: a framework's routing costs more than the call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

import orjson
from prometheus_client import CONTENT_TYPE_LATEST

from agl.errors import InferenceError, StoreError, StoreUnavailableError
from agl.proxy.accounts import accounts_answer
from agl.proxy.admission import Admission
from agl.proxy.attempts import AttemptDirectory
from agl.proxy.budgets import Budgets
from agl.proxy.cache import CacheMode
from agl.proxy.calls import AskedCall, Calls
from agl.proxy.canonical import upstream_error
from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.base import ClientRequest, Dialect
from agl.proxy.dialects.openai_chat import check_common
from agl.proxy.exchange import (
    ClientGoneError,
    Delivery,
    Exchange,
    Header,
    Receive,
    Scope,
    Send,
)
from agl.proxy.json_body import object_from_body
from agl.proxy.keys import AttemptKeys
from agl.proxy.prices import Prices
from agl.proxy.refusal import CallRefusedError
from agl.proxy.repeats import Outcome, identity_of
from agl.proxy.routes import Address, Route, address_from_path, dialect_of_client, is_anthropic
from agl.proxy.side_calls import anthropic_models, model_names, openai_models
from agl.proxy.upstream import RoutedUpstream, Upstream
from agl.proxy.upstreams.waits import seconds_of_client
from agl.store.base import LightningStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_BODY_SECONDS = 120.0  # longest wait for a request's body; a large one over a slow line takes less
_NATIVE_HEADERS = (b"anthropic-version", b"anthropic-beta", b"openai-beta")
"""What providers need of a request's headers when it is passed through to them."""


class ProxyApp:
    """Serves the calls of all attempts of one store with one upstream.

    Args:
        store: where attempts are looked up and calls recorded.
        upstream: what answers the calls.
        secret: of which the attempts' keys are made.
        needs_key: refuse requests without one.
        max_body_bytes: the largest request body.
        upstream_timeout_seconds: the longest a call may take.
        budgets: the limits; None is none.
        prices: of models; None is litellm's, where it is installed.
        cache: which requests are answered from the record of an equal one; None is none.
        now_ns: the wall clock.
        monotonic: the clock of what is remembered.
        rng: of the spans' ids; None is one of its own, seeded by the system.
    """

    def __init__(
        self,
        store: LightningStore,
        upstream: Upstream | RoutedUpstream,
        *,
        secret: str,
        needs_key: bool,
        max_body_bytes: int,
        upstream_timeout_seconds: float,
        budgets: Budgets | None = None,
        prices: Prices | None = None,
        cache: CacheMode | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self._upstream = upstream
        self._keys = AttemptKeys(secret, required=needs_key)
        self._max_body_bytes = max_body_bytes
        self._upstream_timeout_seconds = upstream_timeout_seconds
        self._attempts = AttemptDirectory(store, monotonic=monotonic)
        self._admission = Admission(
            store, budgets=budgets or Budgets(), prices=prices or Prices(), cache=cache, now_ns=now_ns
        )
        self._calls = Calls(
            store,
            upstream,
            attempts=self._attempts,
            admission=self._admission,
            upstream_timeout_seconds=upstream_timeout_seconds,
            now_ns=now_ns,
            rng=rng or Random(),
        )
        self._closing = False
        self._reading: set[asyncio.Timeout] = set()

    async def close(self, *, grace_seconds: float) -> None:
        """Refuse new calls, let those in flight end within the time, cancel the rest, write what is left."""
        self._closing = True
        for limit in self._reading:
            limit.reschedule(asyncio.get_running_loop().time())
        await self._calls.close(grace_seconds=grace_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self._serve(exchange)
        except ClientGoneError:
            return
        except CallRefusedError as error:
            await _refuse(exchange, error)
        except InferenceError as error:
            status = error.status if 400 <= error.status <= 599 else 502
            await _fail(
                exchange, str(error), status=status, code=str(status), body=upstream_error(error.body)
            )
        except StoreError as error:
            log.warning("a call was not answered because the store is unavailable: %s", error)
            message = f"store unavailable: {error}"
            await _fail(exchange, message, status=503, code="store_unavailable")
        except Exception:
            log.exception("the proxy failed on %s", exchange.path)
            message = "the proxy failed on this request; its log says why"
            await _fail(exchange, message, status=500, code="proxy_error")

    async def _serve(self, exchange: Exchange) -> None:
        exchange.check_headers()
        if exchange.path == "/health":
            await exchange.answer(200, orjson.dumps({"status": "stopping" if self._closing else "ok"}))
            return
        if exchange.path in ("/accounts", "/metrics"):
            await self._tell(exchange)
            return
        address, route = address_from_path(exchange.method, exchange.raw_path)
        exchange.dialect = route.dialect
        self._keys.check(exchange.headers, address.rollout_id, address.attempt_id)
        if route.endpoint == "models":
            await self._models(exchange, address)
            return
        body = await self._whole_body(exchange)
        if route.endpoint == "embeddings":
            await self._embeddings(exchange, address, route, body)
        elif route.endpoint == "count_tokens":
            await self._count_tokens(exchange, address, route, body)
        else:
            await self._call(exchange, address, route, body)

    async def _tell(self, exchange: Exchange) -> None:
        """Tell whoever has the proxy's own secret what calls took."""
        self._keys.check_secret(exchange.headers)
        if exchange.method != "GET":
            message = f"{exchange.method} is not served here; use GET"
            raise CallRefusedError(message, status=405, code="method_not_allowed")
        if exchange.path == "/metrics":
            await exchange.answer(
                200, self._admission.metrics.text(), content_type=CONTENT_TYPE_LATEST.encode()
            )
            return
        told = await accounts_answer(self._admission.accounts, exchange.parameters())
        await exchange.answer(200, orjson.dumps(told))

    async def _call(self, exchange: Exchange, address: Address, route: Route, body: bytes) -> None:
        """Perform a call, or find the one that it repeats, and answer."""
        request = route.dialect.request(body)
        if request.stream:
            exchange.delivery = Delivery(exchange, route.dialect.events(request))
        asked = self._asked(exchange, address, route, request)
        recent = self._calls.claim(identity_of(address, exchange.headers, body), asked)
        is_repeat = recent.outcome.done()
        with exchange.watched() as gone:
            answered = await recent.wait(gone)
        if not answered:
            if exchange.delivery is not None:
                exchange.delivery.leave()
            raise ClientGoneError
        if recent.outcome.cancelled():
            message = "the call was cancelled: the proxy is stopping"
            raise CallRefusedError(message, status=503, code="stopping")
        outcome = recent.outcome.result()
        if is_repeat:
            await self._calls.record(outcome)
        if outcome.unrecorded is not None:
            raise StoreUnavailableError("the call was answered but could not be recorded; repeat it")
        await _deliver(exchange, outcome)

    async def _models(self, exchange: Exchange, address: Address) -> None:
        resources = await self._attempts.resources_for_call(address.rollout_id, address.attempt_id)
        names = model_names(self._upstream, resources)
        worded = anthropic_models if is_anthropic(exchange.headers) else openai_models
        await exchange.answer(200, worded(names))

    async def _embeddings(self, exchange: Exchange, address: Address, route: Route, body: bytes) -> None:
        asked = object_from_body(body)
        check_common(asked)
        request = ClientRequest(chat=asked, stream=False, native=asked)
        embedding = self._calls.embedded(self._asked(exchange, address, route, request))
        await exchange.answer(200, await self._unless_gone(exchange, embedding))

    async def _count_tokens(self, exchange: Exchange, address: Address, route: Route, body: bytes) -> None:
        dialect = AnthropicMessages()
        request = dialect.count_request(body)
        counting = self._calls.num_prompt_tokens(self._asked(exchange, address, route, request))
        await exchange.answer(200, dialect.count_answer(await self._unless_gone(exchange, counting)))

    async def _unless_gone(self, exchange: Exchange, asking: Coroutine[Any, Any, T]) -> T:
        """Return what is asked for; give it up when the client leaves or it takes too long."""
        task = asyncio.create_task(asking)
        limit = self._upstream_timeout_seconds
        with exchange.watched() as gone:
            try:
                await asyncio.wait({task, gone}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
            finally:
                task.cancel()
            if gone.done():
                raise ClientGoneError
        raise InferenceError(f"the model server did not answer within {limit:g} s", status=504)

    def _asked(self, exchange: Exchange, address: Address, route: Route, request: ClientRequest) -> AskedCall:
        return AskedCall(
            address=address,
            route=route,
            request=request,
            headers=_native_headers(exchange),
            seconds=seconds_of_client(exchange.headers, limit=self._upstream_timeout_seconds),
            traceparent=exchange.header(b"traceparent"),
            delivery=exchange.delivery,
        )

    async def _whole_body(self, exchange: Exchange) -> bytes:
        """Return the body if it comes in time and before the proxy stops."""
        if exchange.has_whole_body and not self._closing:
            return await exchange.body(self._max_body_bytes)  # there already: a time limit would cost as much
        try:
            async with asyncio.timeout(_BODY_SECONDS) as limit:
                self._reading.add(limit)
                try:
                    body = await exchange.body(self._max_body_bytes)
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


async def _deliver(exchange: Exchange, outcome: Outcome) -> None:
    """Send the answer, or what is missing of a stream that has begun."""
    if exchange.delivery is not None and exchange.delivery.begun:
        await exchange.delivery.finish()
        return
    request_id = (b"x-request-id", outcome.span_id.encode())
    await exchange.answer(outcome.status, outcome.body, request_id, content_type=outcome.content_type)


async def _refuse(exchange: Exchange, error: CallRefusedError) -> None:
    headers: list[Header] = []
    if error.retry is not None:
        headers.append((b"x-should-retry", b"true" if error.retry else b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 413:
        headers.append((b"connection", b"close"))
    await _fail(exchange, str(error), *headers, status=error.status, code=error.code, body=error.error)


async def _fail(
    exchange: Exchange, message: str, *headers: Header, status: int, code: str, body: object = None
) -> None:
    """Tell the client of a failure, in its own format: as a response, or as the end of a stream that has begun."""
    delivery = exchange.delivery
    if delivery is not None and delivery.begun:
        delivery.fail(message, status=status, code=code, body=body)
        with suppress(ClientGoneError):
            await delivery.finish()
        return
    dialect: Dialect = exchange.dialect or dialect_of_client(exchange.headers)
    worded = dialect.error_body(message, status=status, code=code, body=body)
    await exchange.answer(status, worded, *headers)


def _native_headers(exchange: Exchange) -> dict[str, str]:
    headers = exchange.headers
    return {name.decode(): headers[name].decode("latin-1") for name in _NATIVE_HEADERS if name in headers}
