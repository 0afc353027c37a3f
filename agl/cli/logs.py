"""agl logs: the log of a run, or what the attempts of a rollout wrote."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl.cli.attempts import attempts_of
from agl.cli.log_tail import last_lines, lines_from
from agl.cli.named_records import record_named
from agl.cli.progress import Progress
from agl.cli.run_folder import LOG_FILE, RUNS, SETTINGS_FILE, run_folder
from agl.cli.run_state import is_at_work, run_folders
from agl.cli.text import counted, plain, plain_lines, say, say_json
from agl.errors import ConfigError
from agl.evaluation.rollouts import TERMINAL
from agl.store.base import LightningStore
from agl.store.paging import iter_spans
from agl.types import Attempt, Rollout, SpanQuery
from agl.types import attributes as key

LINES_OF_RUN = 50
LOOK_SECONDS = 1.0
"""Between two looks at a rollout that somebody else executes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says beside the id.

    Args:
        tail: the last so many lines, 0 is all; None is the usual number.
        follow: go on until what writes has ended.
        store_url: of a store that is served.
        run_dir: of the run that has the record.
        as_json: print plain values.
    """

    tail: int | None = None
    follow: bool = False
    store_url: str | None = None
    run_dir: str | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an attempt wrote on one stream.

    Args:
        attempt: whose it is.
        stream: ``log``, ``stdout`` or ``stderr``.
        text: what was kept of it.
        num_bytes: all that was written, kept or not.
        span_id: of the record.
    """

    attempt: Attempt
    stream: str
    text: str
    num_bytes: int
    span_id: str

    def lines(self, tail: int) -> list[str]:
        """Return a head line and the last ``tail`` lines, 0 is all."""
        whole = plain_lines(self.text)
        shown = whole[-tail:] if tail else whole
        left = "" if len(shown) == len(whole) else f", the last {len(shown)} of {len(whole)} lines"
        attempt = f"attempt {self.attempt.sequence_id} ({self.attempt.attempt_id})"
        return [f"== {attempt} {plain(self.stream)}, {counted(self.num_bytes, 'byte')}{left}", *shown]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "attempt_id": self.attempt.attempt_id,
            "attempt": self.attempt.sequence_id,
            "stream": self.stream,
            "bytes": self.num_bytes,
            "text": self.text,
        }


def main(wanted: str | None, options: Options) -> None:
    """Print the log.

    Raises:
        ConfigError: nobody knows the id, or what it means has no log.
    """
    if options.follow and options.as_json:
        raise ConfigError("--follow prints lines as they come, --json one document at the end: leave one out")
    folder = _folder(wanted, options)
    if folder is not None:
        _log_of_run(folder, options)
        return
    assert wanted is not None
    asyncio.run(_output(wanted, options))


def _folder(wanted: str | None, options: Options) -> Path | None:
    """The folder of the run that is meant, None where it is no run that has one here."""
    if wanted is not None:
        return None if options.store_url is not None else run_folder(wanted)
    if options.store_url is not None:
        raise ConfigError(
            "a store has no logs of runs, only what rollouts wrote: agl logs ROLLOUT --store-url URL, or agl logs"
            " FOLDER"
        )
    if options.run_dir is not None:
        folder = run_folder(options.run_dir)
        if folder is None:
            raise ConfigError(
                f"there is no run {options.run_dir}: neither it nor {RUNS / options.run_dir} has a {SETTINGS_FILE}"
            )
        return folder
    newest = next(iter(run_folders()), None)
    if newest is None:
        raise ConfigError(f"{RUNS.resolve()} has no run: give a run's folder, or the id of a rollout")
    return newest


def _log_of_run(folder: Path, options: Options) -> None:
    file = folder / LOG_FILE
    if not file.is_file():
        raise ConfigError(f"{folder} has no {LOG_FILE}: only runs that the command line began keep one")
    lines, place = last_lines(file, LINES_OF_RUN if options.tail is None else options.tail)
    if not options.follow:  # the line that a killed process did not finish is one, too
        lines += lines_from(file, place, has_ended=lambda: True, sleep=_slept)
    if options.as_json:
        say_json({"kind": "run", "run_dir": str(folder), "file": str(file), "lines": lines})
        return
    say(plain(line) for line in lines)
    if not options.follow:
        return
    for line in lines_from(file, place, has_ended=lambda: not is_at_work(folder), sleep=_slept):
        say([plain(line)])


def _slept(seconds: float) -> None:
    """Wait, with all that was printed before the reader's eyes."""
    sys.stdout.flush()
    time.sleep(seconds)


async def _output(wanted: str, options: Options) -> None:
    kinds = ("rollout", "attempt", "run")
    async with record_named(wanted, options.store_url, options.run_dir, kinds=kinds) as (store, record):
        if not isinstance(record, Rollout | Attempt):
            raise ConfigError(
                f"{wanted} is a run whose folder is not here: its log is {LOG_FILE} in that folder; a store has only"
                " what rollouts wrote (agl ls rollouts)"
            )
        only = record.attempt_id if isinstance(record, Attempt) else None
        if options.follow:
            await follow(store, record.rollout_id, only, options.tail or 0, sleep=asyncio.sleep, show=say)
            return
        with Progress(sys.stderr, "reading"):
            written = await written_by(store, record.rollout_id, only)
    if options.as_json:
        values = [one.as_json() for one in written]
        say_json({"kind": "rollout", "rollout_id": record.rollout_id, "output": values})
        return
    say([line for one in written for line in one.lines(options.tail or 0)] or [_nothing(record.rollout_id)])


def _nothing(rollout_id: str) -> str:
    return f"{rollout_id} has no output: it wrote nothing, or has not ended (what an attempt writes is kept at its end)"


async def written_by(store: LightningStore, rollout_id: str, only: str | None) -> list[Written]:
    """Return what the attempts of a rollout wrote, in their order; ``only`` is the id of the attempt that is meant."""
    attempts = {attempt.attempt_id: attempt for attempt in await attempts_of(store, rollout_id)}
    query = SpanQuery(rollout_id=rollout_id, attempt_id=only, name=key.OUTPUT_SPAN)
    found = [
        Written(
            attempt=attempts[span.attempt_id],
            stream=str(span.attributes.get(key.OUTPUT_STREAM, "?")),
            text=str(span.attributes.get(key.OUTPUT_TEXT, "")),
            num_bytes=int(span.attributes.get(key.OUTPUT_BYTES, 0)),
            span_id=span.span_id,
        )
        async for span in iter_spans(store, query)
        if span.attempt_id in attempts
    ]
    return sorted(found, key=lambda written: written.attempt.sequence_id)


async def follow(
    store: LightningStore,
    rollout_id: str,
    only: str | None,
    tail: int,
    *,
    sleep: Callable[[float], Awaitable[object]],
    show: Callable[[Sequence[str]], None],
) -> None:
    """Show what the attempts wrote as each of them ends, until the rollout (or the attempt) has ended.

    Args:
        store: open.
        rollout_id: of the rollout.
        only: the id of the attempt that is meant; None is all.
        tail: the last so many lines of each stream, 0 is all.
        sleep: waits so many seconds.
        show: prints lines.
    """
    shown: set[str] = set()
    while True:
        ended = await _has_ended(
            store, rollout_id, only
        )  # before reading: what was written until then is read
        for one in await written_by(store, rollout_id, only):
            if one.span_id not in shown:
                shown.add(one.span_id)
                show(one.lines(tail))
        if ended:
            break
        sys.stdout.flush()
        await sleep(LOOK_SECONDS)
    if not shown:
        show([_nothing(rollout_id)])


async def _has_ended(store: LightningStore, rollout_id: str, only: str | None) -> bool:
    if (await store.get_rollout_by_id(rollout_id)).status in TERMINAL:
        return True
    attempts = await attempts_of(store, rollout_id)
    return any(one.attempt_id == only and one.finished_at is not None for one in attempts)
