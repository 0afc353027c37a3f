"""Writers that remember what a store acknowledged, and the check that all of it is there."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from agl.store.base import LightningStore
from agl.store.paging import iter_attempts, iter_rollouts, iter_spans
from agl.types import (
    AttemptedRollout,
    AttemptQuery,
    MetricQuery,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    Span,
    SpanQuery,
)

RUN = "run"
CONFIG = RolloutConfig(unresponsive_seconds=600, max_attempts=2)
"""A lease that no restart outlasts: whatever is handed out twice was handed out at the same lease."""
TEXT = "x" * 1000


@dataclass
class Facts:
    """What the store has acknowledged."""

    tasks: dict[str, int] = field(default_factory=dict)
    """Of each rollout."""
    claims: dict[str, str] = field(default_factory=dict)
    """The attempt of each rollout that was handed out."""
    spans: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """Trace, attempt and sequence id of each span."""
    running: set[str] = field(default_factory=set)
    rewards: dict[str, float] = field(default_factory=dict)
    """Of each rollout that was reported as succeeded."""
    metrics: dict[tuple[int, str], float] = field(default_factory=dict)

    def copy(self) -> Facts:
        return Facts(
            dict(self.tasks),
            dict(self.claims),
            dict(self.spans),
            set(self.running),
            dict(self.rewards),
            dict(self.metrics),
        )

    def since(self, earlier: Facts) -> Facts:
        """Return the facts that an earlier copy did not have."""
        return Facts(
            {key: value for key, value in self.tasks.items() if key not in earlier.tasks},
            {key: value for key, value in self.claims.items() if key not in earlier.claims},
            {key: value for key, value in self.spans.items() if key not in earlier.spans},
            self.running - earlier.running,
            {key: value for key, value in self.rewards.items() if key not in earlier.rewards},
            {key: value for key, value in self.metrics.items() if key not in earlier.metrics},
        )


class Writers:
    """Callers of a store, each a loop of enqueue, claim, spans, metrics and reports until they are told to stop."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.stop = False
        self.trace = "0" * 32
        """Of the spans written from now on."""
        self._numbers = itertools.count(1)
        self._steps = itertools.count(1)

    async def write(self, store: LightningStore, worker_id: str) -> None:
        while not self.stop:
            await self._enqueue(store, f"{worker_id}-{next(self._numbers)}")
            for held in await store.dequeue_many_rollouts(worker_id=worker_id, limit=2, wait_seconds=0.2):
                await self._execute(store, held)

    async def drain(self, store: LightningStore, worker_id: str) -> None:
        """Execute what is left in the queue."""
        while claimed := await store.dequeue_many_rollouts(worker_id=worker_id, limit=100):
            for held in claimed:
                await self._execute(store, held)

    async def _enqueue(self, store: LightningStore, rollout_id: str) -> None:
        """Enqueue two rollouts, one of them without an id of the caller's."""
        numbers = [next(self._numbers) for _ in range(2)]
        rollouts = await store.enqueue_many_rollouts(
            [
                RolloutRequest(task=number, rollout_id=given, run_id=RUN, config=CONFIG)
                for number, given in zip(numbers, (rollout_id, None), strict=True)
            ]
        )
        self.facts.tasks.update(
            {one.rollout_id: number for one, number in zip(rollouts, numbers, strict=True)}
        )

    async def _execute(self, store: LightningStore, held: AttemptedRollout) -> None:
        rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
        assert rollout_id not in self.facts.claims, f"{rollout_id} was handed out twice"
        self.facts.claims[rollout_id] = attempt_id
        await store.update_attempt(rollout_id, attempt_id, status="running")
        self.facts.running.add(attempt_id)
        spans = [
            Span(
                span_id=f"{next(self._numbers):016x}",
                trace_id=self.trace,
                name="s",
                start_time_ns=1,
                attributes={"text": TEXT},
                rollout_id=rollout_id,
                attempt_id=attempt_id,
            )
            for _ in range(3)
        ]
        for span in await store.add_many_spans(spans):
            assert span.sequence_id is not None
            self.facts.spans[span.span_id] = (span.trace_id, attempt_id, span.sequence_id)
        step = next(self._steps)
        await store.add_metrics(RUN, step, {"loss": step / 2, "reward": step / 4})
        self.facts.metrics |= {(step, "loss"): step / 2, (step, "reward"): step / 4}
        reward = held.rollout.task / 8
        await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=reward)
        self.facts.rewards[rollout_id] = reward


async def missing(store: LightningStore, facts: Facts) -> list[str]:
    """Return what was acknowledged and is not there."""
    return [
        *await _missing_rollouts(store, facts),
        *await _missing_attempts(store, facts),
        *await _missing_spans(store, facts),
        *await _missing_metrics(store, facts),
    ]


async def _missing_rollouts(store: LightningStore, facts: Facts) -> list[str]:
    query = RolloutQuery(rollout_ids=tuple(facts.tasks.keys() | facts.rewards.keys()), limit=10_000)
    found = {one.rollout_id: one async for one in iter_rollouts(store, query)}
    lost = [
        f"rollout {rollout_id}"
        for rollout_id, task in facts.tasks.items()
        if rollout_id not in found or found[rollout_id].task != task
    ]
    for rollout_id, reward in facts.rewards.items():
        one = found.get(rollout_id)
        if one is None or (one.status, one.reward, one.num_attempts) != ("succeeded", reward, 1):
            lost.append(f"reward {reward} of {rollout_id}: {one}")
    return lost


async def _missing_attempts(store: LightningStore, facts: Facts) -> list[str]:
    wanted = dict.fromkeys(facts.claims.values(), ("preparing", "running", "succeeded"))
    wanted |= dict.fromkeys(facts.running, ("running", "succeeded"))
    async for one in iter_attempts(store, AttemptQuery(order="desc")):  # what is new comes first
        if not wanted:
            break
        if one.attempt_id in wanted and one.status in wanted[one.attempt_id]:
            del wanted[one.attempt_id]
    return [f"attempt {attempt_id} as {status[0]}" for attempt_id, status in wanted.items()]


async def _missing_spans(store: LightningStore, facts: Facts) -> list[str]:
    stored: dict[str, tuple[str, str | None, int | None]] = {}
    for trace_id in {place[0] for place in facts.spans.values()}:
        async for span in iter_spans(store, SpanQuery(trace_id=trace_id)):
            stored[span.span_id] = (trace_id, span.attempt_id, span.sequence_id)
    return [f"span {span_id}" for span_id, place in facts.spans.items() if stored.get(span_id) != place]


async def _missing_metrics(store: LightningStore, facts: Facts) -> list[str]:
    points: dict[tuple[int, str], float] = {}
    query = MetricQuery(
        run_id=RUN, min_step=min((step for step, _ in facts.metrics), default=0), limit=10_000
    )
    while True:
        page = await store.query_metrics(query)
        points |= {(point.step, point.name): point.value for point in page.items}
        if page.next_cursor is None:
            return [f"metric {key}" for key, value in facts.metrics.items() if points.get(key) != value]
        query = query.model_copy(update={"cursor": page.next_cursor})
