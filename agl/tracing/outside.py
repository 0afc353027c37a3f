"""The attempt of a process that an agent started: named by the environment, recorded by posting to the store.

A span is sent when it ends and before the call that ended it returns, so that neither ``os._exit`` nor a fork nor a
signal right behind it loses it.
"""

from __future__ import annotations

import http.client
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from urllib.parse import SplitResult, urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from agl.tracing.context import AttemptContext, current_attempt
from agl.tracing.conversion import span_from_otel
from agl.types import Span

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
_CALL_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.1


def attempt_here() -> AttemptContext | None:
    """Return the attempt that the caller runs in: the context's, else the one that the environment names."""
    attempt = current_attempt()
    if attempt is not None:
        return attempt
    url, rollout_id, attempt_id = map(os.environ.get, ("AGL_STORE_URL", "AGL_ROLLOUT_ID", "AGL_ATTEMPT_ID"))
    if not url or not rollout_id or not attempt_id:
        return None
    parent = os.environ.get("TRACEPARENT", "").split("-")
    trace_id, span_id = (parent[1], parent[2]) if len(parent) == 4 else ("", "")
    return _outside_attempt(
        (url, os.environ.get("AGL_STORE_TOKEN")), (rollout_id, attempt_id), (trace_id, span_id), os.getpid()
    )


@cache
def _outside_attempt(
    store: tuple[str, str | None], ids: tuple[str, str], parent: tuple[str, str], pid: int
) -> AttemptContext:
    """One for a process: a forked one (another ``pid``) must not share the connection."""
    del pid
    sink = PostingSink(*store, *ids, parent_id=parent[1] or None)
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": "agl.agent"}),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_attributes=SpanLimits.UNSET, max_attribute_length=SpanLimits.UNSET),
        id_generator=_OneTrace(int(parent[0], 16)) if parent[0] else None,
    )
    provider.add_span_processor(sink)
    tracer = provider.get_tracer("agl")
    if not isinstance(tracer, SdkTracer):
        log.error("OTEL_SDK_DISABLED is set: nothing that this process emits is recorded")
    return AttemptContext(rollout_id=ids[0], attempt_id=ids[1], sink=sink, tracer=tracer)


class PostingSink(SpanProcessor):
    """Sends every ended span to the store at once.

    Args:
        url: the store's.
        token: what it asks for, if anything.
        rollout_id: of the attempt.
        attempt_id: of the attempt.
        parent_id: the span under which those come that have no other parent.
        connect: makes a connection to a URL.
        patience_seconds: how long a span is offered to a store that does not answer.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        rollout_id: str,
        attempt_id: str,
        *,
        parent_id: str | None = None,
        connect: Callable[[SplitResult], http.client.HTTPConnection] | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.sink_id = f"{url} {attempt_id}"
        self._url = urlsplit(url)
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._ids, self._parent_id = (rollout_id, attempt_id), parent_id
        self._connect, self._patience_seconds = connect or _connected, patience_seconds
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def on_end(self, span: ReadableSpan) -> None:
        """Send the span."""
        self.put(span, *self._ids)

    def put(self, span: ReadableSpan | Span, rollout_id: str, attempt_id: str) -> None:
        """Send one span of an attempt; when the store does not take it, that is logged."""
        record = span if isinstance(span, Span) else span_from_otel(span, rollout_id, attempt_id)
        if record.parent_id is None:
            record = record.model_copy(update={"parent_id": self._parent_id})
        body = record.model_dump_json(exclude_none=True).encode()
        with self._lock:
            failure = self._sent(body)
        if failure is not None:
            log.error("%s of rollout %s is lost: %s", span.name, rollout_id, failure)

    def _sent(self, body: bytes) -> str | None:
        """Post; return why the store has it not, None when it has."""
        deadline, pause = time.monotonic() + self._patience_seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                status, text = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                failure = (
                    f"the store at {self._url.geturl()} does not answer ({error or type(error).__name__})"
                )
                self._connection = None
            else:
                if status < 300:
                    return None
                failure = f"the store answers {status} {text}"
                if status < 500:
                    return failure
            if time.monotonic() + pause > deadline:
                return failure
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _post(self, body: bytes) -> tuple[int, str]:
        if self._connection is None:
            self._connection = self._connect(self._url)
        path = f"{self._url.path.rstrip('/')}/v1/spans?answer=ids"
        self._connection.request("POST", path, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")[:500]


def _connected(url: SplitResult) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    return kind(url.netloc, timeout=_CALL_SECONDS)


class _OneTrace(RandomIdGenerator):
    """All spans belong to the trace of the attempt."""

    def __init__(self, trace_id: int) -> None:
        self._trace_id = trace_id

    def generate_trace_id(self) -> int:
        return self._trace_id
