"""Grade recorded rollouts anew: the grader gets from the record what it got when they ran. No agent, no model.

A grader's failure is a failure with its cause, never a zero. New rewards are written beside the old ones, as spans
``agl.regrade`` that nothing reads unless it is asked to.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from agl.adapters.regrades import regraded_reward
from agl.agents.base import Assignment
from agl.agents.binding import BoundFunction
from agl.agents.calling import GIVEN
from agl.errors import AgentError
from agl.runners.attempt import error_info
from agl.runners.grading import Grader
from agl.runners.resources import ResourceShelf, resolved
from agl.store.base import LightningStore
from agl.store.paging import iter_spans
from agl.tracing.reward import Reward, reward_attributes, reward_from_attributes, reward_from_value
from agl.types import Attempt, AttemptedRollout, Rollout, Span, SpanQuery, SpanStatus
from agl.types import attributes as key

AT_ONCE = 16
"""Rollouts graded side by side."""
NO_RESULT = "result_not_recorded"
"""Cause of a rollout whose agent's result the grader needs and the record does not have."""


class ResultNotRecordedError(AgentError):
    """The grader takes ``result``, and this record has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regraded:
    """What a grader says of a recorded rollout.

    Args:
        rollout_id: of the rollout.
        before: its reward as it ended, None where it had none.
        after: the reward now; None where the grader failed, or gave none.
        cause: of the grader's failure.
        message: of the grader's failure.
        written: whether the new reward was stored.
    """

    rollout_id: str
    before: float | None
    after: Reward | None = None
    cause: str | None = None
    message: str = ""
    written: bool = False

    @property
    def changed(self) -> bool:
        """Whether the grader succeeded, and gives another reward."""
        return self.cause is None and self.before != (None if self.after is None else self.after.value)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "rollout_id": self.rollout_id,
            "before": self.before,
            "after": None if self.after is None else self.after.value,
            "dimensions": {} if self.after is None else self.after.dimensions,
            "changed": self.changed,
            "cause": self.cause,
            "message": self.message,
            "written": self.written,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RegradeCounts:
    """Old and new rewards of a set of rollouts: ``graded + all failed + not_graded`` are all that were asked for.

    Args:
        graded: the grader answered.
        failed: graders that failed, by cause.
        not_graded: rollouts that never came to be graded (failed, cancelled, still open), by status.
        changed: of those graded, how many have another reward than before.
        without_reward: of those graded, how many have none now.
        before: mean of the old rewards of those graded, where they had one.
        after: mean of the new ones.
        written: new rewards stored.
    """

    graded: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    not_graded: Counter[str] = field(default_factory=Counter[str])
    changed: int = 0
    without_reward: int = 0
    before: float | None = None
    after: float | None = None
    written: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "graded": self.graded,
            "failed": dict(self.failed),
            "not_graded": dict(self.not_graded),
            "changed": self.changed,
            "without_reward": self.without_reward,
            "mean_before": self.before,
            "mean_after": self.after,
            "written": self.written,
        }


def count_regraded(found: Sequence[Regraded], not_graded: Counter[str]) -> RegradeCounts:
    """Count what a grader said."""
    graded = [one for one in found if one.cause is None]
    before = [one.before for one in graded if one.before is not None]
    after = [one.after.value for one in graded if one.after is not None]
    return RegradeCounts(
        graded=len(graded),
        failed=Counter(one.cause for one in found if one.cause is not None),
        not_graded=not_graded,
        changed=sum(one.changed for one in graded),
        without_reward=len(graded) - len(after),
        before=fmean(before) if before else None,
        after=fmean(after) if after else None,
        written=sum(one.written for one in found),
    )


class Regrading:
    """Grades recorded rollouts of a store.

    Args:
        store: open; written to only where ``writes``.
        function: the grader, as runs take one.
        settings: values for its further parameters.
        name: of the grader, in the record.
        writes: store the new rewards.
        now_ns: the wall clock.
        new_span_id: makes 16 hex digits.
    """

    def __init__(
        self,
        store: LightningStore,
        function: Callable[..., object],
        *,
        name: str,
        now_ns: Callable[[], int],
        new_span_id: Callable[[], str],
        settings: dict[str, Any] | None = None,
        writes: bool = False,
    ) -> None:
        self._store, self._grader, self._name, self._writes = store, Grader(function, settings), name, writes
        bound = BoundFunction(function, given=(*GIVEN, "result", "spans"), settings=settings)
        self._needs_result = "result" in bound.required
        self._shelf = ResourceShelf(store)
        self._now_ns, self._new_span_id = now_ns, new_span_id

    async def regraded(
        self, rollouts: AsyncIterator[Rollout], not_graded: Counter[str]
    ) -> AsyncIterator[Regraded]:
        """Yield what the grader says of each rollout, in their order; count in ``not_graded`` those it is not asked of.

        It is asked of every rollout whose agent returned: those that succeeded, and those that failed in their grader.
        """
        waiting: list[Rollout] = []
        async for rollout in rollouts:
            waiting.append(rollout)
            if len(waiting) == AT_ONCE:
                for one in await self._batch(waiting, not_graded):
                    yield one
                waiting = []
        for one in await self._batch(waiting, not_graded):
            yield one

    async def _batch(self, rollouts: Sequence[Rollout], not_graded: Counter[str]) -> list[Regraded]:
        found = await asyncio.gather(*map(self._one, rollouts))
        not_graded.update(rollout.status for rollout, one in zip(rollouts, found, strict=True) if one is None)
        return [one for one in found if one is not None]

    async def _one(self, rollout: Rollout) -> Regraded | None:
        attempt = await self._store.get_latest_attempt(rollout.rollout_id)
        if attempt is None or rollout.status not in ("succeeded", "failed"):
            return None
        query = SpanQuery(rollout_id=rollout.rollout_id, attempt_id=attempt.attempt_id)
        of_root = query.model_copy(update={"name": key.ROLLOUT_SPAN, "limit": 1})
        root = next(iter((await self._store.query_spans(of_root)).items), None)
        if rollout.status == "failed" and (root is None or key.RESULT not in root.attributes):
            return None
        try:
            after = await self._verdict(rollout, attempt, root, query)
        except Exception as error:  # noqa: BLE001 - the boundary of a grader: recorded by its cause
            failure = error_info(error)
            cause = NO_RESULT if isinstance(error, ResultNotRecordedError) else failure.cause
            return Regraded(
                rollout_id=rollout.rollout_id, before=rollout.reward, cause=cause, message=failure.message
            )
        written = self._writes and after is not None and await self._write(rollout, attempt, root, after)
        return Regraded(rollout_id=rollout.rollout_id, before=rollout.reward, after=after, written=written)

    async def _verdict(
        self, rollout: Rollout, attempt: Attempt, root: Span | None, query: SpanQuery
    ) -> Reward | None:
        named = await self._shelf.named_for(rollout)
        claim = as_it_ran(rollout, attempt)
        resources = named.resources if named else {}
        assignment = Assignment(
            rollout=claim.rollout,
            attempt=claim.attempt,
            resources=resolved(resources, rollout.rollout_id, attempt.attempt_id),
        )
        text = None if root is None else root.attributes.get(key.RESULT)
        if text is None and self._needs_result:
            raise ResultNotRecordedError(
                f"rollout {rollout.rollout_id} has no record of what its agent returned: it was too large, or recorded"
                " by an earlier version"
            )
        result = None if text is None else json.loads(text)
        seen: list[Span] | None = None

        async def spans() -> list[Span]:
            nonlocal seen
            if seen is None:
                seen = [span async for span in iter_spans(self._store, query) if was_seen(span)]
            return seen

        value = await self._grader.grade(assignment, result, spans)
        if value is not None:
            return reward_from_value(value)
        emitted = [span for span in await spans() if span.name == key.REWARD_SPAN]
        return reward_from_attributes(emitted[-1].attributes) if emitted else None

    async def _write(self, rollout: Rollout, attempt: Attempt, root: Span | None, after: Reward) -> bool:
        """Store the reward, unless it is what this grader's latest regrade says already."""
        query = SpanQuery(rollout_id=rollout.rollout_id, attempt_id=attempt.attempt_id, name=key.REGRADE_SPAN)
        earlier = [span async for span in iter_spans(self._store, query)]
        if regraded_reward(earlier, grader=self._name) == after:
            return False
        now = self._now_ns()
        span_id = self._new_span_id()
        span = Span(
            span_id=span_id,
            trace_id=span_id * 2 if root is None else root.trace_id,
            parent_id=None if root is None else root.span_id,
            name=key.REGRADE_SPAN,
            status=SpanStatus(code="ok"),
            attributes={**reward_attributes(after), key.REGRADE_GRADER: self._name},
            resource={"service.name": "agl"},
            start_time_ns=now,
            end_time_ns=now,
            rollout_id=rollout.rollout_id,
            attempt_id=attempt.attempt_id,
        )
        await self._store.add_span(span)
        return True


def as_it_ran(rollout: Rollout, attempt: Attempt) -> AttemptedRollout:
    """Return a finished attempt as its grader saw it: under way, without an end or a reward."""
    running = rollout.changed(
        status="running", reward=None, reward_dimensions={}, error=None, finished_at=None
    )
    return AttemptedRollout(
        rollout=running, attempt=attempt.changed(status="running", error=None, finished_at=None)
    )


def was_seen(span: Span) -> bool:
    """Whether a grader saw the span when the rollout ran: not the attempt's own, its log, its verdict, or a regrade."""
    if span.name in (key.ROLLOUT_SPAN, key.REGRADE_SPAN) or span.attributes.get(key.OUTPUT_STREAM) == "log":
        return False
    return key.REWARD_RETURNED not in span.attributes
