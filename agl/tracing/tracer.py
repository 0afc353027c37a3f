"""Tracer: opens attempts for recording and brings their spans into the store.

It has a provider of its own and leaves the program's alone, unless asked to follow it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Self

from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.trace import Span

from agl.store.base import SpanLog
from agl.tracing.context import AttemptContext, entered
from agl.tracing.exporter import ExportCounts, StoreSpanExporter
from agl.tracing.output import AttemptLog, record_output
from agl.tracing.provider import follow_global, new_provider
from agl.types.attributes import ROLLOUT_SPAN

log = logging.getLogger(__name__)


class Tracer:
    """Records attempts, and what is logged in them. An async context manager; leaving it writes what is left.

    Args:
        store: takes the spans.
        follow_libraries: also take spans that libraries make through OpenTelemetry's global provider; where the program
            has set none, this tracer's becomes the global one.
        exporter: how spans travel; by default a ``StoreSpanExporter`` with its defaults.
    """

    def __init__(
        self, store: SpanLog, *, follow_libraries: bool = False, exporter: StoreSpanExporter | None = None
    ) -> None:
        self._exporter = exporter or StoreSpanExporter(store)
        self._follow_libraries = follow_libraries
        self._provider = new_provider()
        self._log_handler = AttemptLog(self._exporter.sink_id)
        self._tracer = self._provider.get_tracer("agl")

    @property
    def counts(self) -> ExportCounts:
        """Spans stored and lost so far."""
        return self._exporter.counts

    async def __aenter__(self) -> Self:
        if not isinstance(self._tracer, SdkTracer):
            log.warning("OTEL_SDK_DISABLED is set: no spans of agents are recorded (rewards still are)")
        if self._follow_libraries:
            follow_global(self._provider)
        await self._exporter.__aenter__()
        logging.getLogger().addHandler(self._log_handler)
        return self

    async def __aexit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._log_handler)
        await self._exporter.close()

    @contextmanager
    def attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        attributes: Mapping[str, str | int | float | bool] | None = None,
    ) -> Generator[tuple[AttemptContext, Span]]:
        """Make this the current attempt, under a root span of its own; both end with the block."""
        context = AttemptContext(
            rollout_id=rollout_id, attempt_id=attempt_id, sink=self._exporter, tracer=self._tracer
        )
        with (
            entered(context),
            self._tracer.start_as_current_span(
                ROLLOUT_SPAN,
                attributes=attributes,
                set_status_on_exception=False,
                record_exception=False,
            ) as root,
        ):
            try:
                yield context, root
            finally:
                record_output(context, "log", context.log)

    async def flush(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait until every span ended so far is stored or counted as lost; False when time ran out first."""
        return await self._exporter.flush(timeout_seconds=timeout_seconds)
