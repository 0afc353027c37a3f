"""A random walk through each store beside ``store_model``: every step and every state is compared.

Promises checked: no double hand-out, first in first out within a priority, terminal is final, counts add up, sequence
ids unique and monotonic, late and repeated calls, time limits and lost heartbeats, deletion, pages turned while others
write, and that a store which was restarted knows all.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from store_kinds import WALKED, Clock
from store_model import ENDS, Book, Entry, StoreModel, Try

from agl.errors import NotFoundError, StoreError
from agl.store.base import LightningStore
from agl.types import (
    AttemptQuery,
    ErrorInfo,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    Span,
    SpanQuery,
)
from agl.types.query import ListQuery

IDS = [f"ro-{number}" for number in range(10)]
RUNS = ["run-a", "run-b"]
WORKERS = ["w0", "w1"]
CONFIGS = st.builds(
    RolloutConfig,
    timeout_seconds=st.sampled_from([None, None, 20.0]),
    unresponsive_seconds=st.sampled_from([None, 8.0]),
    max_attempts=st.integers(1, 3),
    retry_on=st.sampled_from([("failed", "timeout", "unresponsive"), ("failed",), ("unresponsive",), ()]),
    retry_delay_seconds=st.sampled_from([0.0, 0.0, 2.0, 10.0]),
    retry_max_delay_seconds=st.sampled_from([3.0, 300.0]),
)
REQUESTS = st.builds(
    RolloutRequest,
    task=st.integers(0, 1_000_000),
    rollout_id=st.sampled_from(IDS),
    run_id=st.sampled_from([None, *RUNS]),
    priority=st.integers(0, 1),
    config=CONFIGS,
)
MAYBE_RUN = st.sampled_from([None, None, *RUNS])
REPORTS: list[dict[str, Any]] = [
    {},
    {"status": "running"},
    {"status": "succeeded"},
    {"status": "succeeded", "reward": 0.5, "reward_dimensions": {"style": 1.0}},
    {"status": "failed", "error": ErrorInfo(cause="boom", message="m", traceback="t")},
    {"status": "failed", "reward": -1.0},
    {"status": "timeout", "error": ErrorInfo(cause="slow")},
    {"status": "cancelled"},
]


@dataclass
class Walk:
    """Pages being turned: what must be seen, in which order, and what was."""

    query: ListQuery
    must: list[str]
    seen: list[str] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    """The walk. The clock is moved by rules; whenever it moves, the watchdogs of store and model look."""

    kind_name: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.kind = WALKED[self.kind_name](Path(self.folder.name), self.clock)
        self.model = StoreModel(self.clock)
        self.tasks: dict[str, Any] = {}
        self.span_ids = itertools.count(1)
        self.received: list[str] = []
        self.sent: list[list[Span]] = []
        self.requests: list[tuple[str, str]] = []
        self.handed_out: set[str] = set()
        self.walks: list[Walk] = []

    @property
    def store(self) -> LightningStore:
        return self.kind.store

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Await a call of the store."""
        return self.loop.run_until_complete(call)

    def both(self, call: Coroutine[Any, Any, Any], model: Callable[[], Any]) -> Any:
        """Do it in model and store; what the one refuses, the other must. Returns the answer, None when refused."""
        try:
            model()
        except StoreError as refusal:
            with pytest.raises(type(refusal)):
                self.run(call)
            return None
        return self.run(call)

    def sweep(self) -> None:
        self.model.expire()
        self.run(self.kind.sweep())

    @initialize()
    def start(self) -> None:
        self.run(self.kind.start())
        for worker in WORKERS:
            self.run(self.store.register_worker(worker))

    def teardown(self) -> None:
        try:
            self.run(self.kind.stop())
        finally:
            self.loop.close()
            self.folder.cleanup()

    def entry(self, data: st.DataObject) -> Entry:
        return data.draw(st.sampled_from(list(self.model.entries.values())))

    def attempt(self, data: st.DataObject) -> tuple[Entry, Try]:
        number = data.draw(st.integers(0, len(self.model.tries) - 1))
        return self.model.tries[number]

    def take(self, attempt_id: str, worker: str | None, request_id: str | None, entry: Entry) -> None:
        assert attempt_id not in self.handed_out, "handed out twice"
        self.handed_out.add(attempt_id)
        self.model.hand_out(entry, attempt_id, worker, request_id)

    def forget(self) -> None:
        """What is deleted need not be seen any more, and may come again."""
        gone = set(self.model.gone)
        self.model.gone.clear()
        self.received = [one for one in self.received if one not in gone]
        for walk in self.walks:
            walk.must = [one for one in walk.must if one not in gone]
            walk.seen = [one for one in walk.seen if one not in gone]

    # The queue.

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=3))
    def enqueue(self, requests: list[RolloutRequest]) -> None:
        for request in requests:
            if request.rollout_id not in self.model.entries:
                self.tasks[str(request.rollout_id)] = request.task
                self.model.enqueue([request])
        answers = self.run(self.store.enqueue_many_rollouts(requests))
        entries = [self.model.entries[str(request.rollout_id)] for request in requests]
        assert [(one.rollout_id, one.task, one.status, one.priority, one.run_id) for one in answers] == [
            (one.rollout_id, self.tasks[one.rollout_id], one.status, one.priority, one.run_id)
            for one in entries
        ]

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 3), run_id=MAYBE_RUN, named=st.booleans())
    def claim(self, worker: str, limit: int, run_id: str | None, named: bool) -> None:
        request_id = f"q{len(self.requests)}" if named else None
        if request_id is not None:
            self.requests.append((worker, request_id))
        self.claim_with(worker, limit, run_id, request_id)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim_again(self, data: st.DataObject, limit: int) -> None:
        worker, request_id = data.draw(st.sampled_from(self.requests))
        known = self.model.claimed_by(worker, request_id)
        if not known:
            self.claim_with(worker, limit, None, request_id)
            return
        again = self.run(
            self.store.dequeue_many_rollouts(worker_id=worker, limit=limit, request_id=request_id)
        )
        assert [(one.attempt.attempt_id, one.attempt.status, one.rollout.status) for one in again] == [
            (one.attempt_id, one.status, entry.status) for entry, one in known
        ]

    def claim_with(self, worker: str, limit: int, run_id: str | None, request_id: str | None) -> None:
        expected = self.model.queue(run_id)[:limit]
        claimed = self.run(
            self.store.dequeue_many_rollouts(
                worker_id=worker, limit=limit, run_id=run_id, request_id=request_id
            )
        )
        assert [held.rollout.rollout_id for held in claimed] == [entry.rollout_id for entry in expected]
        for held, entry in zip(claimed, expected, strict=True):
            self.take(held.attempt.attempt_id, worker, request_id, entry)
            assert held.attempt.sequence_id == held.rollout.num_attempts == len(entry.tries)
            assert (held.attempt.worker_id, held.attempt.lease) == (worker, entry.tries[-1].lease)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        worker, request_id = data.draw(st.sampled_from(self.requests))
        expected = self.model.undo(worker, request_id)
        assert self.run(self.store.undo_dequeue(worker_id=worker, request_id=request_id)) == expected
        self.forget()

    @rule(request=REQUESTS, worker=st.sampled_from([None, *WORKERS]))
    def start_rollout(self, request: RolloutRequest, worker: str | None) -> None:
        held = self.both(
            self.store.start_rollout(request, worker_id=worker), lambda: self.model.start(request)
        )
        if held is not None:
            self.tasks[str(request.rollout_id)] = request.task
            self.take(held.attempt.attempt_id, worker, None, self.model.entries[str(request.rollout_id)])

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), worker=st.sampled_from([None, *WORKERS]))
    def start_attempt(self, data: st.DataObject, worker: str | None) -> None:
        entry = self.entry(data)
        held = self.both(
            self.store.start_attempt(entry.rollout_id, worker_id=worker),
            lambda: self.model.hand_out(entry, "", worker, None),
        )
        if held is not None:
            one = entry.tries[-1]
            assert held.attempt.attempt_id not in self.handed_out
            self.handed_out.add(held.attempt.attempt_id)
            one.attempt_id = held.attempt.attempt_id
            assert held.attempt.sequence_id == one.number

    @rule(worker=st.sampled_from([*WORKERS, "stranger"]), data=st.data())
    def heartbeat(self, worker: str, data: st.DataObject) -> None:
        known = [one.attempt_id for _, one in self.model.tries]
        wanted = [*(data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []), "at-unknown"]
        call = self.store.worker_heartbeat(worker, attempts=wanted, stats={"n": len(wanted)})
        if worker == "stranger":
            with pytest.raises(NotFoundError):
                self.run(call)
            return
        assert self.run(call) == self.model.lost(worker, wanted)

    @precondition(lambda self: self.model.tries)
    @rule(data=st.data(), said=st.sampled_from(REPORTS))
    def report(self, data: st.DataObject, said: dict[str, Any]) -> None:
        entry, one = self.attempt(data)
        done = self.both(
            self.store.update_attempt(entry.rollout_id, one.attempt_id, **said),
            lambda: self.model.report(entry, one, said),
        )
        if done is not None:
            assert (done.attempt.status, done.rollout.status) == (one.status, entry.status)

    @precondition(lambda self: self.model.entries)
    @rule(
        data=st.data(),
        status=st.sampled_from(["pending", "preparing", "running", "requeuing", *ENDS]),
        metadata=st.sampled_from([None, {"m": [1, None]}]),
    )
    def move(self, data: st.DataObject, status: Any, metadata: Any) -> None:
        entry = self.entry(data)
        changed = self.both(
            self.store.update_rollout(entry.rollout_id, status=status, metadata=metadata),
            lambda: self.model.update(entry, status=status, metadata=metadata),
        )
        if changed is not None:
            assert (changed.status, changed.metadata) == (entry.status, entry.metadata)

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), priority=st.sampled_from([None, 0, 1, 2]), config=st.none() | CONFIGS)
    def change(self, data: st.DataObject, priority: int | None, config: RolloutConfig | None) -> None:
        entry = self.entry(data)
        changed = self.both(
            self.store.update_rollout(entry.rollout_id, priority=priority, config=config),
            lambda: self.model.update(entry, priority=priority, config=config),
        )
        if changed is not None:
            assert (changed.priority, changed.config) == (entry.priority, entry.config)
        self.sweep()  # a shorter limit may be over already

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        entry = self.entry(data)
        answer = self.both(self.store.cancel_rollout(entry.rollout_id), lambda: self.model.cancel(entry))
        assert answer is None or answer.status == "cancelled"

    # Time.

    @rule(seconds=st.sampled_from([1.0, 3.0, 8.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.sweep()

    @precondition(lambda self: self.kind.restarts)
    @rule(seconds=st.sampled_from([0.0, 5.0, 30.0]))
    def restart(self, seconds: float) -> None:
        identity = self.run(self.store.health())["identity"]
        self.run(self.kind.restart(lambda: self.clock.advance(seconds)))
        if self.kind.grace:
            self.model.forgive()
        self.sweep()
        assert self.run(self.store.health())["identity"] == identity

    # Spans.

    @rule(data=st.data(), count=st.integers(1, 4))
    def add_spans(self, data: st.DataObject, count: int) -> None:
        spans: list[Span] = []
        for _ in range(count):
            to = data.draw(st.sampled_from(["attempt", "attempt", "rollout", "nobody"]))
            fields: dict[str, Any] = {}
            if to == "attempt" and self.model.tries:
                entry, one = self.attempt(data)
                wanted = self.wanted_number(data, entry, one)
                fields = {"rollout_id": entry.rollout_id, "attempt_id": one.attempt_id, "sequence_id": wanted}
            elif to == "rollout" and self.model.entries:
                fields = {"rollout_id": self.entry(data).rollout_id}
            spans.append(
                Span(
                    span_id=f"{next(self.span_ids):016x}",
                    trace_id="ab" * 16,
                    name="s",
                    start_time_ns=1,
                    **fields,
                )
            )
        self.send(spans)
        self.sent.append(spans)
        self.send(spans)  # a client that did not hear the answer sends them again

    def wanted_number(self, data: st.DataObject, entry: Entry, one: Try) -> int | None:
        given = data.draw(st.sampled_from(["none", "none", "allocated", "taken", "ahead"]))
        if given == "taken" and one.stored:
            return next(iter(one.stored.values())).sequence_id
        if given == "allocated":
            key = (entry.rollout_id, one.attempt_id)
            numbers = self.run(self.store.get_many_span_sequence_ids([key, key]))
            assert one.highest < numbers[0] < numbers[1]
            one.highest = numbers[1]
            if one is entry.held:
                self.model.alive(entry)
            return data.draw(st.sampled_from(numbers))
        return one.highest + 3 if given == "ahead" else None

    def send(self, spans: list[Span]) -> None:
        stored = self.run(self.store.add_many_spans(spans))
        known = set(self.model.spans())
        self.model.store_spans(spans, stored)
        self.received += [one for one in dict.fromkeys(span.span_id for span in spans) if one not in known]

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_late(self, data: st.DataObject) -> None:
        spans = data.draw(st.sampled_from(self.sent))
        rollouts = {span.rollout_id for span in spans} - {None}
        attempts = {span.attempt_id for span in spans} - {None}
        known = {one.attempt_id for _, one in self.model.tries}
        if rollouts <= self.model.entries.keys() and attempts <= known:
            self.send(spans)
        else:
            with pytest.raises(NotFoundError):
                self.run(self.store.add_many_spans(spans))

    # Forgetting.

    @rule(age=st.sampled_from([0.0, 5.0]), run_id=MAYBE_RUN)
    def delete_spans(self, age: float, run_id: str | None) -> None:
        before = self.clock.now - age
        expected = self.model.forget_spans(before, run_id)
        assert self.run(self.store.delete_spans(finished_before=before, run_id=run_id)) == expected
        self.forget()

    @rule(run_id=st.sampled_from(RUNS), step=st.integers(0, 2))
    def train(self, run_id: str, step: int) -> None:
        self.run(self.store.add_run(name="n", run_id=run_id))
        self.run(self.store.add_metrics(run_id, step, {"loss": 1.0, f"m{step}": 2.0}))
        self.model.runs.setdefault(run_id, Book()).metrics.update([(step, "loss"), (step, f"m{step}")])

    @rule(run_id=st.sampled_from(RUNS), end_it=st.booleans())
    def delete_run(self, run_id: str, end_it: bool) -> None:
        if end_it:
            for entry in [one for one in self.model.entries.values() if one.run_id == run_id]:
                if entry.status not in ENDS:
                    self.both(
                        self.store.cancel_rollout(entry.rollout_id), lambda e=entry: self.model.cancel(e)
                    )
            if run_id in self.model.runs:
                self.run(self.store.update_run(run_id, status="interrupted"))
                self.model.runs[run_id].status = "interrupted"
        counts: dict[str, int] = {}
        answer = self.both(
            self.store.delete_run(run_id), lambda: counts.update(self.model.forget_run(run_id))
        )
        assert answer is None or answer == counts
        self.forget()

    # Pages.

    @rule(data=st.data(), order=st.sampled_from(["asc", "desc"]), limit=st.integers(1, 3))
    def open_walk(self, data: st.DataObject, order: Any, limit: int) -> None:
        what = data.draw(st.sampled_from(["rollouts", "attempts", "spans", "trace"]))
        how: dict[str, Any] = {"order": order, "limit": limit}
        if what == "attempts":
            query: ListQuery = AttemptQuery(**how)
            must = [one.attempt_id for _, one in sorted(self.model.tries, key=lambda one: one[1].claimed)]
        elif what == "spans":
            query, must = SpanQuery(**how), list(self.received)
        elif what == "trace" and self.model.entries:
            entry = self.entry(data)
            query = SpanQuery(rollout_id=entry.rollout_id, **how)
            must = [
                span.span_id
                for one in entry.tries
                for span in sorted(one.stored.values(), key=lambda span: span.sequence_id or 0)
            ]
        else:
            run_id = data.draw(MAYBE_RUN)
            query = RolloutQuery(run_id=run_id, **how)
            entries = self.model.entries.values()
            must = [one.rollout_id for one in entries if run_id in (None, one.run_id)]
        self.walks = [*self.walks[-2:], Walk(query, must if order == "asc" else must[::-1])]

    @precondition(lambda self: self.walks)
    @rule(data=st.data())
    def turn_page(self, data: st.DataObject) -> None:
        walk = data.draw(st.sampled_from(self.walks))
        query = walk.query
        if isinstance(query, RolloutQuery):
            page = self.run(self.store.query_rollouts(query))
            ids = [one.rollout_id for one in page.items]
        elif isinstance(query, AttemptQuery):
            page = self.run(self.store.query_attempts(query))
            ids = [one.attempt_id for one in page.items]
        else:
            assert isinstance(query, SpanQuery)
            page = self.run(self.store.query_spans(query))
            ids = [one.span_id for one in page.items]
        assert len(ids) <= query.limit
        walk.seen += ids
        assert len(set(walk.seen)) == len(walk.seen), "a page showed again what another had shown"
        if page.next_cursor is not None:
            assert len(ids) == query.limit
            walk.query = query.model_copy(update={"cursor": page.next_cursor})
            return
        must = set(walk.must)
        assert [one for one in walk.seen if one in must] == walk.must
        self.walks.remove(walk)

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        entry = self.entry(data)
        rollout = self.run(self.store.get_rollout_by_id(entry.rollout_id))
        assert (rollout.finished_at, rollout.metadata) == (entry.finished, entry.metadata)
        latest = self.run(self.store.get_latest_attempt(entry.rollout_id))
        assert (latest and latest.attempt_id) == (entry.tries[-1].attempt_id if entry.tries else None)
        over = self.run(self.store.wait_for_rollouts(list(self.model.entries), timeout_seconds=0.0))
        assert [one.rollout_id for one in over] == [
            one.rollout_id for one in self.model.entries.values() if one.status in ENDS
        ]

    # What must hold at all times.

    @invariant()
    def rollouts_agree(self) -> None:
        page = self.run(self.store.query_rollouts(RolloutQuery(limit=10_000)))
        seen = [
            (
                one.rollout_id,
                one.status,
                one.reward,
                one.error.cause if one.error else None,
                one.num_attempts,
                one.retry_at,
            )
            for one in page.items
        ]
        assert seen == [
            (one.rollout_id, one.status, one.reward, one.cause, len(one.tries), one.retry_at)
            for one in self.model.entries.values()
        ]

    @invariant()
    def counts_add_up(self) -> None:
        counts = self.run(self.store.statistics())
        by_status = Counter(entry.status for entry in self.model.entries.values())
        assert Counter(counts["rollouts"]) == by_status
        assert sum(counts["rollouts"].values()) == len(self.model.entries)
        assert Counter(counts["attempts"]) == Counter(one.status for _, one in self.model.tries)
        assert counts["pausing"] == sum(one.retry_at is not None for one in self.model.entries.values())
        assert counts["spans"] == len(self.model.spans())
        assert counts["runs"] == len(self.model.runs)

    @invariant()
    def spans_agree(self) -> None:
        page = self.run(self.store.query_spans(SpanQuery(limit=10_000)))
        assert {one.span_id: (one.attempt_id, one.sequence_id) for one in page.items} == self.model.spans()


EXAMPLES = {
    "memory": (50, 50),
    "file": (50, 50),
    "http-memory": (12, 40),
    "http-file": (10, 40),
    "mongo": (3, 25),
    "http-mongo": (2, 20),
}
"""Walks and steps of each implementation in the profile ``quick``: as many as fit into some seconds."""


def _case(kind: str) -> type:
    machine = type(f"{kind.title()}Machine", (StoreMachine,), {"kind_name": kind})
    examples, steps = EXAMPLES[kind]
    case = machine.TestCase
    more = settings().max_examples // settings.get_profile("quick").max_examples
    case.settings = settings(
        max_examples=examples * more,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink a walk takes minutes
    )
    return case


TestMemory = _case("memory")
TestFile = _case("file")
TestHttpMemory = _case("http-memory")
TestHttpFile = _case("http-file")
TestMongo = _case("mongo")
TestHttpMongo = _case("http-mongo")


def test_every_implementation_is_walked() -> None:
    assert EXAMPLES.keys() == WALKED.keys()
