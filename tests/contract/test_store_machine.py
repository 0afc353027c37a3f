"""A random walk through the store beside a simple model of the queue: every step and every state is compared.

Promises checked: no double hand-out, first in first out within a priority, terminal is final, counts add up, sequence
ids unique and monotonic, late and repeated calls, time limits and lost heartbeats, and that a reopened file knows all.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agl.errors import ConflictError
from agl.store.sqlite import SqliteStore
from agl.types import ErrorInfo, RolloutConfig, RolloutQuery, RolloutRequest, Span, SpanQuery

OPEN = ("pending", "preparing", "running", "requeuing")
STEPS = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@dataclass
class Try:
    """The model's attempt."""

    attempt_id: str
    worker: str
    number: int
    started: float
    heard: float
    status: str = "preparing"
    report: Any = None
    spans: list[int] = field(default_factory=list)
    next_span: int = 1


@dataclass
class Entry:
    """The model's rollout."""

    rollout_id: str
    priority: int
    config: RolloutConfig
    place: int
    status: str = "pending"
    reward: float | None = None
    cause: str | None = None
    tries: list[Try] = field(default_factory=list)

    @property
    def held(self) -> Try | None:
        return self.tries[-1] if self.status in ("preparing", "running") else None

    def deadline(self) -> float | None:
        held = self.held
        if held is None:
            return None
        limits = []
        if self.config.timeout_seconds is not None:
            limits.append(held.started + self.config.timeout_seconds)
        if self.config.unresponsive_seconds is not None:
            limits.append(held.heard + self.config.unresponsive_seconds)
        return min(limits, default=None)


class StoreMachine(RuleBasedStateMachine):
    """The walk. Time is a number that rules advance; it only counts once the store is called, like the real clock."""

    in_file = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        path = str(Path(self.folder.name) / "store.sqlite") if self.in_file else ":memory:"
        self.path = path
        self.store = SqliteStore(path, clock=lambda: self.now)
        self.entries: dict[str, Entry] = {}
        self.places = itertools.count()
        self.span_ids = itertools.count(1)
        self.claims: dict[str, list[tuple[str, str]]] = {}

    def run(self, call: Any) -> Any:
        """Await a call; by then the model's watchdog has looked, as the store's must have."""
        self.expire()
        return self.loop.run_until_complete(call)

    @initialize()
    def start(self) -> None:
        self.run(self.store.open())
        for worker in ("w0", "w1"):
            self.run(self.store.register_worker(worker))

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    # The model.

    def end(self, entry: Entry, end: str, cause: str | None, reward: float | None = None) -> None:
        held = entry.tries[-1]
        held.status = end
        if end == "succeeded":
            entry.status, entry.reward = "succeeded", reward
        elif end in entry.config.retry_on and len(entry.tries) < entry.config.max_attempts:
            entry.status, entry.place = "requeuing", next(self.places)
        else:
            entry.status, entry.cause = "cancelled" if end == "cancelled" else "failed", cause

    def expire(self) -> None:
        due = [
            (entry.deadline(), entry.tries[-1].started, entry)
            for entry in self.entries.values()
            if entry.held
        ]
        ripe = [(when, entry) for when, _, entry in due if when is not None and when <= self.now]
        for when, entry in sorted(ripe, key=lambda one: (one[0], self.order_of(one[1]))):
            timeout = entry.config.timeout_seconds
            cause = (
                "timeout"
                if timeout is not None and entry.tries[-1].started + timeout == when
                else "unresponsive"
            )
            self.end(entry, cause, cause)

    def order_of(self, entry: Entry) -> int:
        return self.claim_order[entry.tries[-1].attempt_id]

    @property
    def claim_order(self) -> dict[str, int]:
        return {attempt_id: number for number, attempt_id in enumerate(self.handed_out)}

    @property
    def handed_out(self) -> list[str]:
        return self.__dict__.setdefault("_handed_out", [])

    def alive(self, entry: Entry) -> None:
        held = entry.tries[-1]
        held.heard, held.status, entry.status = self.now, "running", "running"

    def queue(self) -> list[Entry]:
        waiting = [entry for entry in self.entries.values() if entry.status in ("pending", "requeuing")]
        return sorted(waiting, key=lambda entry: (-entry.priority, entry.place))

    def pick(self, data: st.DataObject, held: bool | None = None) -> Entry | None:
        entries = [one for one in self.entries.values() if held is None or (one.held is not None) == held]
        return data.draw(st.sampled_from(entries)) if entries else None

    # The walk.

    @rule(
        priority=st.integers(0, 1),
        max_attempts=st.integers(1, 3),
        timeout=st.sampled_from([None, 20.0]),
        silence=st.sampled_from([None, 8.0]),
        retry_on=st.sampled_from([("failed", "timeout", "unresponsive"), ("failed",), ("unresponsive",), ()]),
    )
    def enqueue(self, priority: int, max_attempts: int, timeout: Any, silence: Any, retry_on: Any) -> None:
        config = RolloutConfig(
            timeout_seconds=timeout,
            unresponsive_seconds=silence,
            max_attempts=max_attempts,
            retry_on=retry_on,
        )
        rollout_id = f"ro-{len(self.entries)}"
        self.run(
            self.store.enqueue_rollout(
                RolloutRequest(task=0, rollout_id=rollout_id, priority=priority, config=config)
            )
        )
        self.entries[rollout_id] = Entry(rollout_id, priority, config, next(self.places))

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        entry = self.pick(data)
        assert entry is not None
        again = self.run(self.store.enqueue_rollout(RolloutRequest(task=1, rollout_id=entry.rollout_id)))
        assert (again.task, again.status) == (0, entry.status)

    @rule(worker=st.sampled_from(["w0", "w1"]), limit=st.integers(1, 3))
    def claim(self, worker: str, limit: int) -> None:
        request_id = f"q{len(self.claims)}"
        claimed = self.run(
            self.store.dequeue_many_rollouts(worker_id=worker, limit=limit, request_id=request_id)
        )
        expected = self.queue()[:limit]
        assert [held.rollout.rollout_id for held in claimed] == [entry.rollout_id for entry in expected]
        for held, entry in zip(claimed, expected, strict=True):
            assert held.attempt.attempt_id not in self.handed_out, "handed out twice"
            self.handed_out.append(held.attempt.attempt_id)
            number = len(entry.tries) + 1
            assert held.attempt.sequence_id == number
            entry.tries.append(Try(held.attempt.attempt_id, worker, number, self.now, self.now))
            entry.status = "preparing"
        if claimed:
            self.claims[request_id] = [(worker, held.attempt.attempt_id) for held in claimed]

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(list(self.claims)))
        worker = self.claims[request_id][0][0]
        again = self.run(self.store.dequeue_many_rollouts(worker_id=worker, limit=3, request_id=request_id))
        assert [(worker, held.attempt.attempt_id) for held in again] == self.claims[request_id]

    @rule(seconds=st.sampled_from([1.0, 3.0, 8.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.store.sweep())

    @rule(worker=st.sampled_from(["w0", "w1"]))
    def heartbeat(self, worker: str) -> None:
        self.expire()
        mine = [one for entry in self.entries.values() for one in entry.tries if one.worker == worker]
        lost = self.run(self.store.worker_heartbeat(worker, attempts=[one.attempt_id for one in mine]))
        own = []
        for entry in self.entries.values():
            if entry.held and entry.held.worker == worker:
                own.append(entry.held.attempt_id)
                self.alive(entry)
        assert lost == [one.attempt_id for one in mine if one.attempt_id not in own]

    @precondition(lambda self: any(entry.tries for entry in self.entries.values()))
    @rule(
        data=st.data(),
        given=st.sampled_from(["none", "allocated", "taken", "ahead"]),
        count=st.integers(1, 3),
    )
    def add_spans(self, data: st.DataObject, given: str, count: int) -> None:
        self.expire()
        entry = data.draw(st.sampled_from([entry for entry in self.entries.values() if entry.tries]))
        one = data.draw(st.sampled_from(entry.tries))
        key = (entry.rollout_id, one.attempt_id)
        wanted: list[int | None] = [None] * count
        if given == "allocated":
            wanted = list(self.run(self.store.get_many_span_sequence_ids([key] * count)))
            assert wanted == list(range(one.next_span, one.next_span + count))
            one.next_span += count
        elif given == "taken" and one.spans:
            wanted = [one.spans[0]] * count
        elif given == "ahead":
            wanted = [one.next_span + 1 + number for number in range(count)]
        spans = [
            Span(
                span_id=f"{next(self.span_ids):016x}",
                trace_id="ab" * 16,
                name="s",
                start_time_ns=1,
                rollout_id=key[0],
                attempt_id=key[1],
                sequence_id=number,
            )
            for number in wanted
        ]
        stored = self.run(self.store.add_many_spans(spans))
        numbers = [span.sequence_id for span in stored]
        if given in ("allocated", "ahead"):
            assert numbers == wanted
        else:
            assert numbers == list(range(one.next_span, one.next_span + count))
        assert not set(numbers) & set(one.spans)
        one.spans += numbers
        one.next_span = max(one.next_span, max(numbers) + 1)
        if one is entry.held:
            self.alive(entry)
        assert self.run(self.store.add_many_spans(spans)) == stored  # the same spans again
        one.next_span += count  # a repeat may leave a gap, never a number used twice

    @precondition(lambda self: any(entry.tries for entry in self.entries.values()))
    @rule(
        data=st.data(),
        report=st.sampled_from(["running", "succeeded", "rewarded", "failed", "timeout", "cancelled"]),
    )
    def update(self, data: st.DataObject, report: str) -> None:
        self.expire()
        entry = data.draw(st.sampled_from([entry for entry in self.entries.values() if entry.tries]))
        one = data.draw(st.sampled_from(entry.tries))
        said: dict[str, Any] = {"status": "succeeded" if report == "rewarded" else report}
        if report == "rewarded":
            said["reward"] = 0.5
        if report in ("failed", "timeout"):
            said["error"] = ErrorInfo(cause=f"cause-{report}")
        call = self.store.update_attempt(entry.rollout_id, one.attempt_id, **said)
        if one is not entry.held and one.report != said:
            with pytest.raises(ConflictError):
                self.run(call)
            return
        done = self.run(call)
        if one is not entry.held:
            assert done.attempt.status == one.status
        elif report == "running":
            self.alive(entry)
        else:
            one.report = said
            error = said.get("error")
            self.end(entry, said["status"], error.cause if error else "cancelled", said.get("reward"))

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.expire()
        entry = self.pick(data)
        assert entry is not None
        call = self.store.cancel_rollout(entry.rollout_id)
        if entry.status in ("succeeded", "failed"):
            with pytest.raises(ConflictError):
                self.run(call)
            return
        assert self.run(call).status == "cancelled"
        if entry.held:
            self.end(entry, "cancelled", "cancelled")
        elif entry.status != "cancelled":
            entry.status, entry.cause = "cancelled", "cancelled"

    @precondition(lambda self: self.in_file)
    @rule(seconds=st.sampled_from([0.0, 5.0, 30.0]))
    def reopen(self, seconds: float) -> None:
        self.expire()
        identity = self.run(self.store.health())["identity"]
        self.run(self.store.close())
        self.now += seconds
        self.expire_limits_and_grant_grace()
        self.store = SqliteStore(self.path, clock=lambda: self.now)
        self.loop.run_until_complete(self.store.open())
        assert self.run(self.store.health())["identity"] == identity

    def expire_limits_and_grant_grace(self) -> None:
        """While the store was away nobody could be heard: silence is not held against anyone, time limits are."""
        for entry in self.entries.values():
            if entry.held and entry.config.unresponsive_seconds is not None:
                entry.held.heard = self.now
        self.expire()

    # What must hold at all times.

    @invariant()
    def store_and_model_agree(self) -> None:
        if not self.entries:
            return
        page = self.run(self.store.query_rollouts(RolloutQuery(limit=10_000)))
        seen = {
            rollout.rollout_id: (
                rollout.status,
                rollout.reward,
                rollout.error.cause if rollout.error else None,
                rollout.num_attempts,
            )
            for rollout in page.items
        }
        assert seen == {
            key: (entry.status, entry.reward, entry.cause, len(entry.tries))
            for key, entry in self.entries.items()
        }

    @invariant()
    def counts_add_up(self) -> None:
        counts = self.run(self.store.statistics())
        by_status = Counter(entry.status for entry in self.entries.values())
        assert Counter(counts["rollouts"]) == by_status
        ended = sum(counts["rollouts"][end] for end in ("succeeded", "failed", "cancelled"))
        assert len(self.entries) == ended + sum(counts["rollouts"][status] for status in OPEN)
        tries = Counter(one.status for entry in self.entries.values() for one in entry.tries)
        assert Counter(counts["attempts"]) == tries

    @invariant()
    def sequence_ids_are_unique_and_monotonic(self) -> None:
        for entry in list(self.entries.values())[:3]:
            page = self.run(self.store.query_spans(SpanQuery(rollout_id=entry.rollout_id)))
            for one in entry.tries:
                numbers = [span.sequence_id for span in page.items if span.attempt_id == one.attempt_id]
                assert numbers == sorted(set(one.spans))


class FileStoreMachine(StoreMachine):
    """The same walk over a file, which is closed and opened again now and then."""

    in_file = True


TestMemory = StoreMachine.TestCase
TestMemory.settings = STEPS
TestFile = FileStoreMachine.TestCase
TestFile.settings = STEPS
