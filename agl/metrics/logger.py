"""MetricLogger: hands what a run reports to every sink; a sink that fails is dropped, the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from agl.metrics.base import MetricSink, Progress

log = logging.getLogger(__name__)


@runtime_checkable
class Rewindable(Protocol):
    """A sink that keeps numbers and can take back those of later steps."""

    def rewind(self, step: int) -> None:
        """Forget what was reported for steps after ``step``."""
        ...


class MetricLogger:
    """A sink made of sinks. A context manager: leaving closes them all.

    Args:
        sinks: receive everything, in this order.
    """

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._sinks = tuple(sinks)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Report the numbers of one iteration."""
        self._each(lambda sink: sink.metrics(step, values))

    def progress(self, progress: Progress) -> None:
        """Report the run's position; cheap enough to be called often."""
        self._each(lambda sink: sink.progress(progress))

    def note(self, text: str) -> None:
        """Report a line that a person should read once; it is in the log too."""
        log.info("%s", text)
        self._each(lambda sink: sink.note(text))

    def rewind(self, step: int) -> None:
        """Forget what was reported for steps after ``step``: a resumed run reports them again."""
        self._each(lambda sink: sink.rewind(step) if isinstance(sink, Rewindable) else None)

    def close(self) -> None:
        """Close every sink; further reports go nowhere."""
        self._each(lambda sink: sink.close())
        self._sinks = ()

    def _each(self, report: Callable[[MetricSink], None]) -> None:
        for sink in self._sinks:
            try:
                report(sink)
            except Exception as error:  # noqa: BLE001 - a metric sink must not end a run
                self._sinks = tuple(other for other in self._sinks if other is not sink)
                log.warning(
                    "%s failed and gets no more metrics in this run: %s: %s",
                    type(sink).__name__,
                    type(error).__name__,
                    error,
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
