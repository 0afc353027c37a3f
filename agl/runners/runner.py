"""LitAgentRunner: claims rollouts as slots come free, executes them side by side, reports each as it ends.

Nothing polls: claims are long waits, and a stop event ends them. An attempt's spans are stored before its report.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from agl.agents.base import Agent, opened
from agl.agents.function import as_agent
from agl.agents.lit_agent import LitAgent
from agl.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    StoreChangedError,
    StoreError,
    StoreUnavailableError,
)
from agl.runners.attempt import MAX_MESSAGE, Workplace, execute_attempt
from agl.runners.grading import Grader
from agl.runners.hooks import Hook, HookCalls
from agl.runners.outcome import Outcome
from agl.runners.reach import excused
from agl.runners.resources import ResourceShelf
from agl.runners.retry import delays, when_available
from agl.store.address import last_seconds
from agl.store.base import LightningStore
from agl.tracing.plain import clean_text
from agl.tracing.tracer import Tracer
from agl.types import AttemptedRollout, ErrorInfo

log = logging.getLogger(__name__)

CLAIM_WAIT_SECONDS = 30.0
"""How long one claim waits in the store; then it is asked again. Below usual proxies' 60 s limit of an idle request."""
UNREPORTABLE = "unreportable"
"""Cause of an attempt whose own report the store refuses."""
BLOCKED_SECONDS = 0.1
"""A heartbeat later than this, and than its own interval, tells of a blocked event loop."""
LAST_WORDS_SECONDS = 1.5
"""How long an ending runner tries to hand back what it was stopped at."""


@dataclass(slots=True)
class RunnerStats:
    """What a runner did. In the end ``claimed = succeeded + failed + superseded + handed_back``."""

    claimed: int = 0
    succeeded: int = 0
    without_reward: int = 0
    """Of those that succeeded."""
    failed: Counter[str] = field(default_factory=Counter[str])
    """By cause; timeouts too."""
    superseded: int = 0
    """No longer this runner's when it wanted to report, or before: cancelled, timed out or taken by another."""
    handed_back: int = 0
    """Stopped with the runner; their rollouts wait in the queue again."""
    spans_lost: Counter[str] = field(default_factory=Counter[str])

    def as_json(self) -> dict[str, object]:
        """Return the counts as they stand on the worker's row."""
        return {
            "claimed": self.claimed,
            "succeeded": self.succeeded,
            "without_reward": self.without_reward,
            "failed": dict(self.failed),
            "superseded": self.superseded,
            "handed_back": self.handed_back,
            "spans_lost": dict(self.spans_lost),
        }


@dataclass(slots=True)
class _Work:
    """An attempt in hand."""

    claim: AttemptedRollout
    task: asyncio.Task[None]
    lost: bool = False
    reporting: bool = False


class LitAgentRunner:
    """Executes rollouts of a store with one agent.

    Args:
        store: where rollouts come from and reports go.
        agent: an ``Agent``, a ``LitAgent`` or a function.
        worker_id: names this runner in the store; by default host, process and a random part.
        max_concurrency: the most attempts at once.
        heartbeat_seconds: how often the store hears that this runner and its attempts live; oftener where a rollout's
            ``unresponsive_seconds`` asks for it.
        run_id: only rollouts of this run.
        grader: turns what the agent returned into the reward.
        hooks: are called around each attempt.
        store_url: where programs that agents start reach the store; None where they cannot.
        store_token: the store's own token, of which each attempt gets one of its own.
        follow_libraries: record spans of libraries instrumented with OpenTelemetry, too (see ``Tracer``).
    """

    def __init__(
        self,
        store: LightningStore,
        agent: Agent | LitAgent[Any] | Callable[..., object],
        *,
        worker_id: str | None = None,
        max_concurrency: int = 32,
        heartbeat_seconds: float = 5.0,
        run_id: str | None = None,
        grader: Callable[..., object] | Grader | None = None,
        hooks: Iterable[Hook | type[Hook] | str] = (),
        store_url: str | None = None,
        store_token: str | None = None,
        follow_libraries: bool = True,
    ) -> None:
        if max_concurrency < 1:
            raise ConfigError(
                f"max_concurrency={max_concurrency}: a runner needs room for at least 1 attempt"
            )
        if not heartbeat_seconds > 0:
            raise ConfigError(f"heartbeat_seconds={heartbeat_seconds} must be above 0")
        self.worker_id = worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.stats = RunnerStats()
        self._store = store
        self._agent = as_agent(agent)
        self._grader = grader if grader is None or isinstance(grader, Grader) else Grader(grader)
        self._hooks = HookCalls(hooks)
        self._store_url, self._store_token = store_url, store_token
        self._max_concurrency = max_concurrency
        self._interval = heartbeat_seconds
        self._sooner = asyncio.Event()
        self._run_id = run_id
        self._follow_libraries = follow_libraries
        self._in_hand: dict[str, _Work] = {}
        self._stopped: list[AttemptedRollout] = []
        self._freed = asyncio.Event()
        self._claims = count(1)

    async def run(self, stop: asyncio.Event) -> RunnerStats:
        """Execute rollouts until ``stop`` is set, then finish what is in hand and return the counts.

        When it is cancelled instead, the agents are stopped and their rollouts handed back to the queue.
        """
        tracer = Tracer(self._store, follow_libraries=self._follow_libraries)
        self.stats.spans_lost = tracer.counts.lost
        workplace = Workplace(
            agent=self._agent,
            store=self._store,
            resources=ResourceShelf(self._store),
            tracer=tracer,
            grader=self._grader,
            hooks=self._hooks,
            store_url=self._store_url,
            store_token=self._store_token,
        )
        try:
            async with opened(self._agent), tracer, asyncio.TaskGroup() as group:
                stopping = group.create_task(_wait(stop), name="agl-runner-stop")
                await self._register()
                heart = group.create_task(self._beat(), name="agl-runner-heartbeat")
                await self._claim_until(stopping, group, workplace)
                if self._in_hand:
                    await asyncio.wait([work.task for work in self._in_hand.values()])
                heart.cancel()
        except BaseExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__  # as it was raised, without the group around it
        finally:
            await self._last_words()
        return self.stats

    async def _register(self) -> None:
        await when_available(
            lambda: self._store.register_worker(self.worker_id, host=socket.gethostname(), pid=os.getpid()),
            what=f"registering the runner {self.worker_id}",
        )
        await self._heartbeat()

    async def _claim_until(
        self, stopping: asyncio.Task[None], group: asyncio.TaskGroup, workplace: Workplace
    ) -> None:
        while not stopping.done():
            free = self._max_concurrency - len(self._in_hand)
            if free == 0:
                self._freed.clear()
                freed = group.create_task(_wait(self._freed))
                await asyncio.wait((stopping, freed), return_when=asyncio.FIRST_COMPLETED)
                freed.cancel()
                continue
            for claim in await self._claim(free, stopping):
                self._start(claim, group, workplace)

    async def _claim(self, limit: int, stopping: asyncio.Task[None]) -> list[AttemptedRollout]:
        """Claim up to ``limit`` rollouts; a lost answer is asked for again under the same request id."""
        request_id = f"{self.worker_id}-{next(self._claims)}"
        for delay in delays():
            try:
                return await self._ask(request_id, limit, stopping)
            except StoreChangedError:
                raise
            except StoreUnavailableError as error:
                log.warning(
                    "the store is unavailable (%s): the runner %s waits for it", error, self.worker_id
                )
                await asyncio.wait((stopping,), timeout=delay)
                if stopping.done():
                    return []
        raise AssertionError("delays() has no end")

    async def _ask(self, request_id: str, limit: int, stopping: asyncio.Task[None]) -> list[AttemptedRollout]:
        asking = asyncio.create_task(
            self._store.dequeue_many_rollouts(
                worker_id=self.worker_id,
                limit=limit,
                wait_seconds=CLAIM_WAIT_SECONDS,
                request_id=request_id,
                run_id=self._run_id,
            )
        )
        try:
            await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()  # what a cancelled claim took goes back to the queue: the store sees to it
        await asyncio.wait((asking,))
        return [] if asking.cancelled() else asking.result()

    def _start(self, claim: AttemptedRollout, group: asyncio.TaskGroup, workplace: Workplace) -> None:
        attempt_id = claim.attempt.attempt_id
        if attempt_id in self._in_hand:
            return
        self.stats.claimed += 1
        task = group.create_task(self._work(claim, workplace), name=f"agl-attempt-{attempt_id}")
        self._in_hand[attempt_id] = _Work(claim, task)
        task.add_done_callback(lambda _: self._put_down(attempt_id))
        patience = claim.rollout.config.unresponsive_seconds
        if patience is not None and patience / 3 < self._interval:
            self._interval = patience / 3
            self._sooner.set()

    def _put_down(self, attempt_id: str) -> None:
        work = self._in_hand.pop(attempt_id)
        self._freed.set()
        if work.lost:
            self.stats.superseded += 1
        elif work.task.cancelled() or work.task.exception() is not None:
            self._stopped.append(work.claim)

    async def _work(self, claim: AttemptedRollout, workplace: Workplace) -> None:
        begun = time.monotonic()
        outcome = await execute_attempt(claim, workplace)
        await workplace.tracer.flush()
        outcome = await excused(outcome, claim, store=self._store, shelf=workplace.resources, begun=begun)
        self._in_hand[claim.attempt.attempt_id].reporting = True
        await self._report(claim, outcome)

    async def _report(self, claim: AttemptedRollout, outcome: Outcome) -> None:
        rollout_id, attempt_id = claim.attempt.rollout_id, claim.attempt.attempt_id
        try:
            await when_available(
                lambda: self._store.update_attempt(
                    rollout_id,
                    attempt_id,
                    status=outcome.status,
                    worker_id=self.worker_id,
                    reward=outcome.reward,
                    reward_dimensions=outcome.dimensions or None,
                    error=outcome.error,
                ),
                what=f"reporting rollout {rollout_id} attempt {attempt_id}",
            )
        except (ConflictError, NotFoundError) as error:
            self._refused(claim, outcome, error)
        except StoreError as error:
            if outcome.error is not None and outcome.error.cause == UNREPORTABLE:
                raise
            log.exception("the store refuses the report of rollout %s attempt %s", rollout_id, attempt_id)
            refusal = ErrorInfo(cause=UNREPORTABLE, message=clean_text(str(error))[:MAX_MESSAGE])
            await self._report(claim, Outcome(status="failed", error=refusal))
        else:
            self._count(outcome)

    def _refused(self, claim: AttemptedRollout, outcome: Outcome, error: StoreError) -> None:
        """Count a report that came too late; both clocks of a time limit saying so is no news."""
        if outcome.status == "timeout":
            self.stats.failed["timeout"] += 1
            return
        self.stats.superseded += 1
        log.warning(
            "the report of rollout %s attempt %s (%s) is dropped, the attempt is no longer this runner's: %s",
            claim.rollout.rollout_id,
            claim.attempt.attempt_id,
            outcome.status,
            error,
        )

    def _count(self, outcome: Outcome) -> None:
        if outcome.status == "succeeded":
            self.stats.succeeded += 1
            self.stats.without_reward += outcome.reward is None
        else:
            self.stats.failed[outcome.error.cause if outcome.error else outcome.status] += 1

    async def _last_words(self) -> None:
        """Hand back the rollouts that were stopped with the runner, and tell the store that nothing is in hand."""
        try:
            async with asyncio.timeout(last_seconds(self._store, LAST_WORDS_SECONDS)):
                while self._stopped:
                    await self._hand_back(self._stopped[-1])
                    self._stopped.pop()
                await self._heartbeat(ended=True)
        except (TimeoutError, StoreError) as error:
            self.stats.superseded += len(self._stopped)
            log.log(
                logging.ERROR if self._stopped else logging.WARNING,
                "the store does not hear the end of the runner %s (%s); rollouts that could not be handed back: %s",
                self.worker_id,
                str(error) or "no answer in time",
                ", ".join(claim.rollout.rollout_id for claim in self._stopped) or "none",
            )

    async def _hand_back(self, claim: AttemptedRollout) -> None:
        rollout_id = claim.rollout.rollout_id
        latest = await self._store.get_latest_attempt(rollout_id)
        if (
            latest is not None
            and latest.attempt_id == claim.attempt.attempt_id
            and latest.finished_at is None
        ):
            with suppress(ConflictError):
                await self._store.update_rollout(rollout_id, status="requeuing")
                self.stats.handed_back += 1
                return
        self.stats.superseded += 1

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            interval, begin = self._interval, loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._sooner.wait()
            self._sooner.clear()
            late = loop.time() - begin - interval
            if late > max(interval, BLOCKED_SECONDS):
                log.warning(
                    "the event loop was blocked for %.1f s: an async agent makes blocking calls; "
                    "make it a sync function, or use asyncio.to_thread",
                    late,
                )
            await self._heartbeat()

    async def _heartbeat(self, *, ended: bool = False) -> None:
        try:
            gone = await self._store.worker_heartbeat(
                self.worker_id,
                attempts=list(self._in_hand),
                stats={**self.stats.as_json(), "run_id": self._run_id, "ended": ended},
            )
        except StoreChangedError:
            raise
        except StoreUnavailableError as error:
            log.warning("a heartbeat of the runner %s did not reach the store: %s", self.worker_id, error)
            return
        except NotFoundError:
            await self._register()
            return
        held = [self._in_hand[attempt_id] for attempt_id in gone if attempt_id in self._in_hand]
        lost = [work for work in held if not work.reporting and not work.lost]
        for work in lost:
            work.lost = True
            work.task.cancel()
        if lost:
            shown = ", ".join(work.claim.rollout.rollout_id for work in lost[:3])
            log.warning(
                "no longer this runner's (cancelled, timed out or taken back) and stopped: %d attempts, of %s%s",
                len(lost),
                shown,
                ", ..." if len(lost) > 3 else "",
            )


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
