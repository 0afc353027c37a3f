"""A model of the store for random walks: the queue, attempts, spans and runs as plain lists, written for reading.

It is an independent statement of the promises of ``agl.store.base``: what it refuses, the store must refuse with the
same exception. What the contract leaves open (the gap that a repeat leaves in the numbers of spans) stays open here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agl.errors import ConflictError, NotFoundError
from agl.store.retries import retry_at
from agl.types import RolloutConfig, RolloutRequest, Span

QUEUED = ("pending", "requeuing")
HELD = ("preparing", "running")
ENDS = ("succeeded", "failed", "cancelled")
BY_CALLER = {"running", "requeuing", "succeeded", "failed", "cancelled"}
"""What ``update_rollout`` may make of a rollout that an attempt holds."""


@dataclass
class Try:
    """The model's attempt."""

    attempt_id: str
    worker: str | None
    request_id: str | None
    number: int
    claimed: int
    started: float
    heard: float
    lease: float | None
    status: str = "preparing"
    report: Any = None
    highest: int = 0
    """The highest sequence id known to be given out."""
    stored: dict[str, Span] = field(default_factory=dict)


@dataclass
class Entry:
    """The model's rollout."""

    rollout_id: str
    run_id: str | None
    priority: int
    config: RolloutConfig
    place: int
    status: str = "pending"
    reward: float | None = None
    cause: str | None = None
    finished: float | None = None
    metadata: Any = field(default_factory=dict)
    retry_at: float | None = None
    tries: list[Try] = field(default_factory=list)
    stored: dict[str, Span] = field(default_factory=dict)
    """Spans of the rollout that name no attempt."""

    @property
    def held(self) -> Try | None:
        return self.tries[-1] if self.status in HELD else None

    @property
    def num_spans(self) -> int:
        return len(self.stored) + sum(len(one.stored) for one in self.tries)

    def deadline(self) -> float | None:
        held = self.held
        limits = [] if held is None or held.lease is None else [held.lease]
        if held is not None and self.config.timeout_seconds is not None:
            limits.append(held.started + self.config.timeout_seconds)
        return min(limits, default=None)


@dataclass
class Book:
    """The model's run."""

    status: str = "running"
    metrics: set[tuple[int, str]] = field(default_factory=set)


class StoreModel:
    """The state that the store must have after the same calls. Every method applies what is overdue first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.entries: dict[str, Entry] = {}
        self.loose: dict[str, float] = {}
        """When each span without a rollout was stored."""
        self.runs: dict[str, Book] = {}
        self.gone: list[str] = []
        """Ids of what was deleted or taken back, for walks through pages."""
        self._places = itertools.count()
        self._claims = itertools.count()

    @property
    def now(self) -> float:
        return self.clock()

    @property
    def tries(self) -> list[tuple[Entry, Try]]:
        return [(entry, one) for entry in self.entries.values() for one in entry.tries]

    def spans(self) -> dict[str, tuple[str | None, int | None]]:
        """Return attempt and sequence id of every stored span."""
        every = [span for entry in self.entries.values() for span in entry.stored.values()]
        every += [span for _, one in self.tries for span in one.stored.values()]
        numbered = {span.span_id: (span.attempt_id, span.sequence_id) for span in every}
        return numbered | dict.fromkeys(self.loose, (None, None))

    # Time.

    def expire(self) -> None:
        """End what is overdue, the most overdue first; ties in the order of their claims."""
        now = self.now
        due = [(entry.deadline(), entry) for entry in self.entries.values()]
        ripe = [(when, entry) for when, entry in due if when is not None and when <= now]
        for when, entry in sorted(ripe, key=lambda one: (one[0], one[1].tries[-1].claimed)):
            limit = entry.config.timeout_seconds
            timeout = limit is not None and entry.tries[-1].started + limit == when
            self._end(
                entry, "timeout" if timeout else "unresponsive", "timeout" if timeout else "unresponsive"
            )
        paused = [
            (one.retry_at, place, one) for place, one in enumerate(self.entries.values()) if one.retry_at
        ]
        for _, _, entry in sorted(one for one in paused if one[0] <= now):
            entry.retry_at, entry.place = None, next(self._places)

    def forgive(self) -> None:
        """Nobody could be heard while the store was away: silence starts anew, time limits go on."""
        for entry in self.entries.values():
            if entry.held and entry.config.unresponsive_seconds is not None:
                entry.held.lease = self.now + entry.config.unresponsive_seconds

    def alive(self, entry: Entry) -> None:
        held = entry.held
        assert held is not None
        held.heard, held.status, entry.status = self.now, "running", "running"
        held.lease = self._lease(entry.config, self.now)

    def _lease(self, config: RolloutConfig, heard: float) -> float | None:
        return None if config.unresponsive_seconds is None else heard + config.unresponsive_seconds

    def _end(self, entry: Entry, end: str, cause: str | None, reward: float | None = None) -> None:
        held = entry.tries[-1]
        held.status, held.lease = end, None
        if end in entry.config.retry_on and len(entry.tries) < entry.config.max_attempts:
            self._requeue(entry)
            entry.retry_at = retry_at(entry.config, entry.rollout_id, len(entry.tries), now=self.now)
            return
        entry.status = end if end in ("succeeded", "cancelled") else "failed"
        entry.cause, entry.reward, entry.finished = cause, reward, self.now

    def _requeue(self, entry: Entry) -> None:
        entry.status, entry.place = "requeuing", next(self._places)

    # The queue.

    def enqueue(self, requests: Iterable[RolloutRequest]) -> list[Entry]:
        return [self._enqueue(request) for request in requests]

    def _enqueue(self, request: RolloutRequest) -> Entry:
        rollout_id = str(request.rollout_id)
        if rollout_id not in self.entries:
            self.entries[rollout_id] = Entry(
                rollout_id, request.run_id, request.priority, request.config, next(self._places)
            )
        return self.entries[rollout_id]

    def queue(self, run_id: str | None = None) -> list[Entry]:
        waiting = [one for one in self.entries.values() if one.status in QUEUED and one.retry_at is None]
        mine = [one for one in waiting if run_id is None or one.run_id == run_id]
        return sorted(mine, key=lambda one: (-one.priority, one.place))

    def claimed_by(self, worker: str, request_id: str) -> list[tuple[Entry, Try]]:
        """Return what a repeat of that dequeue answers."""
        mine = [one for one in self.tries if (one[1].worker, one[1].request_id) == (worker, request_id)]
        return sorted(mine, key=lambda one: one[1].claimed)

    def hand_out(self, entry: Entry, attempt_id: str, worker: str | None, request_id: str | None) -> None:
        if entry.status not in QUEUED:
            raise ConflictError(entry.status)
        lease = self._lease(entry.config, self.now)
        number, claimed = len(entry.tries) + 1, next(self._claims)
        entry.tries.append(Try(attempt_id, worker, request_id, number, claimed, self.now, self.now, lease))
        entry.status, entry.retry_at = "preparing", None

    def undo(self, worker: str, request_id: str) -> list[str]:
        back: list[str] = []
        for entry, one in self.claimed_by(worker, request_id):
            if one is entry.held and one.status == "preparing":
                entry.tries.pop()
                entry.status = "requeuing" if entry.tries else "pending"
                self.gone.append(one.attempt_id)
                back.append(entry.rollout_id)
        return back

    def start(self, request: RolloutRequest) -> Entry:
        if request.rollout_id in self.entries:
            raise ConflictError("exists")
        return self._enqueue(request)

    def lost(self, worker: str, attempts: Sequence[str]) -> list[str]:
        """Renew the worker's attempts among these; return the others."""
        own = set()
        for entry, one in self.tries:
            if one is entry.held and one.worker in (worker, None) and one.attempt_id in attempts:
                self.alive(entry)
                own.add(one.attempt_id)
        return [attempt_id for attempt_id in attempts if attempt_id not in own]

    def report(self, entry: Entry, one: Try, said: dict[str, Any]) -> None:
        status, error = said.get("status"), said.get("error")
        if one is not entry.held:
            if one.report is None or one.report != said:
                raise ConflictError("terminal is final")
        elif status in (None, "running"):
            self.alive(entry)
        else:
            one.report = said
            cause = error.cause if error else None if status == "succeeded" else str(status)
            self._end(entry, str(status), cause, said.get("reward"))

    def cancel(self, entry: Entry) -> None:
        if entry.status in ("succeeded", "failed"):
            raise ConflictError(entry.status)
        if entry.held:
            self._end(entry, "cancelled", "cancelled")
        elif entry.status != "cancelled":
            entry.status, entry.cause, entry.finished = "cancelled", "cancelled", self.now
            entry.retry_at = None

    def update(
        self,
        entry: Entry,
        *,
        status: str | None = None,
        priority: int | None = None,
        config: RolloutConfig | None = None,
        metadata: Any = None,
    ) -> None:
        over = entry.status in ENDS
        moves = status is not None and status != entry.status
        if over and (priority is not None or config is not None or moves):
            raise ConflictError("terminal is final")
        if moves and status not in (BY_CALLER if entry.held else {"cancelled"}):
            raise ConflictError(f"{entry.status} to {status}")
        if metadata is not None:
            entry.metadata = metadata
        if priority is not None:
            entry.priority = priority
        if config is not None:
            entry.config = config
            if entry.held:
                entry.held.lease = self._lease(config, entry.held.heard)
        if moves:
            self._move(entry, str(status))

    def _move(self, entry: Entry, status: str) -> None:
        if status == "cancelled":
            self.cancel(entry)
        elif status == "running":
            self.alive(entry)
        elif status == "requeuing":
            entry.tries[-1].status, entry.tries[-1].lease = "cancelled", None
            self._requeue(entry)
        else:
            entry.tries[-1].status, entry.tries[-1].lease = status, None
            entry.status, entry.finished = status, self.now
            entry.cause = None if status == "succeeded" else "failed"

    # Spans and runs.

    def store_spans(self, asked: Sequence[Span], answered: Sequence[Span]) -> None:
        """Take spans over as the store numbered them, after checking that the numbers keep the promises."""
        owners = {one.attempt_id: (entry, one) for entry, one in self.tries}
        before = {attempt_id: one.highest for attempt_id, (_, one) in owners.items()}
        last: dict[str, int] = {}
        for wanted, span in zip(asked, answered, strict=True):
            assert span.model_copy(update={"sequence_id": wanted.sequence_id}) == wanted
            if span.attempt_id is None:
                assert span.sequence_id is None
                if span.rollout_id is None:
                    self.loose.setdefault(span.span_id, self.now)
                else:
                    self.entries[span.rollout_id].stored[span.span_id] = span
                continue
            entry, one = owners[span.attempt_id]
            number = span.sequence_id
            assert number is not None
            known = one.stored.get(span.span_id)
            if known is not None:
                assert span == known, "a span stored before is answered as it was"
            else:
                taken = {stored.sequence_id for stored in one.stored.values()}
                assert number not in taken, "a sequence id was given twice"
                if wanted.sequence_id is not None and wanted.sequence_id not in taken:
                    assert number == wanted.sequence_id, "a free number was not kept"
                else:
                    assert number > max(before[span.attempt_id], last.get(span.attempt_id, 0))
                    last[span.attempt_id] = number
                one.stored[span.span_id] = span
                one.highest = max(one.highest, number)
            if one is entry.held:
                self.alive(entry)

    def forget_spans(self, finished_before: float, run_id: str | None) -> int:
        old = [
            entry
            for entry in self.entries.values()
            if entry.finished is not None
            and entry.finished < finished_before
            and run_id in (None, entry.run_id)
        ]
        before = len(self.gone)
        for entry in old:
            for stored in (entry.stored, *(one.stored for one in entry.tries)):
                self.gone.extend(stored)
                stored.clear()
        if run_id is None:
            for span_id in [one for one, when in self.loose.items() if when < finished_before]:
                del self.loose[span_id]
                self.gone.append(span_id)
        return len(self.gone) - before

    def forget_run(self, run_id: str) -> dict[str, int]:
        mine = [entry for entry in self.entries.values() if entry.run_id == run_id]
        if run_id not in self.runs and not mine:
            raise NotFoundError(run_id)
        book = self.runs.get(run_id, Book(status="succeeded"))
        if book.status == "running" or any(entry.status not in ENDS for entry in mine):
            raise ConflictError(run_id)
        for entry in mine:
            self.gone += [entry.rollout_id, *entry.stored]
            for one in entry.tries:
                self.gone += [one.attempt_id, *one.stored]
            del self.entries[entry.rollout_id]
        self.runs.pop(run_id, None)
        return {
            "rollouts": len(mine),
            "attempts": sum(len(entry.tries) for entry in mine),
            "spans": sum(entry.num_spans for entry in mine),
            "resources": 0,
            "metrics": len(book.metrics),
        }
