"""What an attempt wrote (log records, standard output and error), kept with it as spans, within bounds."""

from __future__ import annotations

import logging
from typing import Literal

from agl.tracing.context import AttemptContext, current_attempt
from agl.tracing.kept import KeptBytes
from agl.tracing.plain import clean_text
from agl.types.attributes import OUTPUT_BYTES, OUTPUT_SPAN, OUTPUT_STREAM, OUTPUT_TEXT

Stream = Literal["log", "stdout", "stderr"]


class AttemptLog(logging.Handler):
    """Adds the log records of code that runs in an attempt to that attempt's log.

    Args:
        sink_id: only of attempts whose spans go to this sink; others have a handler of their own.
        prints_kept: what is kept is also printed where nobody else listens; else only what is not kept is.
    """

    def __init__(self, sink_id: str, *, prints_kept: bool = True) -> None:
        super().__init__()
        self._sink_id = sink_id
        self._prints_kept = prints_kept
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, when it is of an attempt; where nobody else listens, print it as Python does."""
        attempt = self._attempt_of(record)
        if attempt is None or self._prints_kept:
            self._print_where_nobody_listens(record)
        if attempt is None:
            return
        try:
            line = self.format(record)
        except (TypeError, ValueError, KeyError):  # arguments that do not fit the message
            line = f"{record.levelname} {record.name}: {record.msg}"
        attempt.log.add(clean_text(line).encode() + b"\n")

    def _attempt_of(self, record: logging.LogRecord) -> AttemptContext | None:
        if record.name.startswith("agl.tracing"):  # what says that spans are lost must not make more of them
            return None
        attempt = current_attempt()
        return attempt if attempt is not None and attempt.sink.sink_id == self._sink_id else None

    def _print_where_nobody_listens(self, record: logging.LogRecord) -> None:
        """Hand on to ``logging.lastResort``, which a program without handlers prints its warnings with."""
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return
        logger: logging.Logger | None = logging.getLogger(record.name)
        listeners: list[logging.Handler] = []
        while logger is not None:
            listeners += logger.handlers
            logger = logger.parent if logger.propagate else None
        ours = [one for one in listeners if isinstance(one, AttemptLog)]
        if len(ours) == len(listeners) and ours[0] is self:
            last.handle(record)


def record_output(attempt: AttemptContext, stream: Stream, kept: KeptBytes) -> None:
    """Record what came on a stream as a span of the attempt; nothing where nothing came."""
    if kept.num_bytes:
        facts = {OUTPUT_STREAM: stream, OUTPUT_TEXT: kept.text(), OUTPUT_BYTES: kept.num_bytes}
        attempt.tracer.start_span(OUTPUT_SPAN, attributes=facts).end()
