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
    """

    def __init__(self, sink_id: str) -> None:
        super().__init__()
        self._sink_id = sink_id
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, when it is of an attempt."""
        if record.name.startswith("agl.tracing"):  # what says that spans are lost must not make more of them
            return
        attempt = current_attempt()
        if attempt is None or attempt.sink.sink_id != self._sink_id:
            return
        try:
            line = self.format(record)
        except (TypeError, ValueError, KeyError):  # arguments that do not fit the message
            line = f"{record.levelname} {record.name}: {record.msg}"
        attempt.log.add(clean_text(line).encode() + b"\n")


def record_output(attempt: AttemptContext, stream: Stream, kept: KeptBytes) -> None:
    """Record what came on a stream as a span of the attempt; nothing where nothing came."""
    if kept.num_bytes:
        facts = {OUTPUT_STREAM: stream, OUTPUT_TEXT: kept.text(), OUTPUT_BYTES: kept.num_bytes}
        attempt.tracer.start_span(OUTPUT_SPAN, attributes=facts).end()
