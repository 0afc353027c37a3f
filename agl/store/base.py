"""LightningStore: the one async contract of the queue and the record.

Every implementation passes ``tests/contract/test_store.py``. What comes back is a copy; unknown ids raise
NotFoundError, illegal transitions ConflictError. The many-forms are the primitives; the single forms are written
once, here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptQuery,
    AttemptStatus,
    ErrorInfo,
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    Resource,
    ResourcesQuery,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    RolloutStatus,
    Run,
    RunQuery,
    RunStatus,
    Span,
    SpanQuery,
    Worker,
    WorkerQuery,
)


class RolloutQueue(ABC):
    """Rollouts and attempts: first in, first out within a priority."""

    @abstractmethod
    async def enqueue_many_rollouts(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Append to the queue, all or none. A known ``rollout_id`` answers the rollout that it named first.

        ``run_id`` is a label: the run need not be in the book. A retried rollout joins the end of its priority, after
        the pause that its config asks for (``retry_at``). The store's clock alone decides when.

        Raises:
            NotFoundError: a request names unknown resources.
        """

    async def enqueue_rollout(self, request: RolloutRequest) -> Rollout:
        """Append one rollout to the queue."""
        return (await self.enqueue_many_rollouts([request]))[0]

    @abstractmethod
    async def dequeue_many_rollouts(
        self,
        *,
        worker_id: str,
        limit: int = 1,
        wait_seconds: float = 0.0,
        request_id: str | None = None,
        run_id: str | None = None,
    ) -> list[AttemptedRollout]:
        """Claim up to ``limit`` rollouts in one atomic step: claim, attempt and lease together.

        Args:
            worker_id: who claims; it need not be registered.
            limit: the most rollouts handed out.
            wait_seconds: how long to wait for a first rollout when the queue is empty. Returns as soon as one is
                there.
            request_id: makes the call idempotent: the worker's repeat answers the same claim, as it stands now.
            run_id: only rollouts of this run.
        """

    async def dequeue_rollout(
        self,
        *,
        worker_id: str,
        wait_seconds: float = 0.0,
        request_id: str | None = None,
        run_id: str | None = None,
    ) -> AttemptedRollout | None:
        """Claim one rollout, or return None when none came in time."""
        claimed = await self.dequeue_many_rollouts(
            worker_id=worker_id, limit=1, wait_seconds=wait_seconds, request_id=request_id, run_id=run_id
        )
        return claimed[0] if claimed else None

    @abstractmethod
    async def undo_dequeue(self, *, worker_id: str, request_id: str) -> list[str]:
        """Take back a dequeue whose answer did not reach its caller.

        Its attempts that show no sign of life yet vanish, and their rollouts stand in the queue where they stood;
        what runs or has ended stays. An unknown request changes nothing.

        Returns:
            Ids of the rollouts that went back.
        """

    @abstractmethod
    async def start_rollout(
        self, request: RolloutRequest, *, worker_id: str | None = None
    ) -> AttemptedRollout:
        """Make a rollout and its first attempt at once, past the queue. ConflictError for a known ``rollout_id``."""

    @abstractmethod
    async def start_attempt(self, rollout_id: str, *, worker_id: str | None = None) -> AttemptedRollout:
        """Open a new attempt of a rollout that waits in the queue (pending, requeuing), or pauses before its retry.

        Raises:
            ConflictError: the rollout is terminal or an attempt is under way.
        """

    @abstractmethod
    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        status: AttemptStatus | None = None,
        worker_id: str | None = None,
        reward: float | None = None,
        reward_dimensions: Mapping[str, float] | None = None,
        error: ErrorInfo | None = None,
    ) -> AttemptedRollout:
        """Report on an attempt; the rollout follows in the same step (done, requeued or failed).

        ``reward`` belongs to the final report (``succeeded`` or ``failed``). Any accepted report is a sign of life.
        A repeat of the very report that ended the attempt is answered, not refused.

        Raises:
            ConflictError: the attempt is terminal, or superseded by a later one.
            InvalidRequestError: a reward that is not finite.
        """

    @abstractmethod
    async def update_rollout(
        self,
        rollout_id: str,
        *,
        status: RolloutStatus | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> Rollout:
        """Change what is given. Only legal transitions; a terminal rollout accepts ``metadata`` and nothing else.

        ``requeuing`` takes an open rollout back from its worker: the attempt is cancelled, the rollout waits again.

        Raises:
            ConflictError: the change is not legal from the rollout's status.
        """

    @abstractmethod
    async def cancel_rollout(self, rollout_id: str) -> Rollout:
        """Cancel a rollout and its attempt. Cancelling a cancelled rollout answers it; other terminal ones
        conflict.
        """

    @abstractmethod
    async def get_rollout_by_id(self, rollout_id: str) -> Rollout:
        """Return the rollout. NotFoundError for an unknown id."""

    @abstractmethod
    async def query_rollouts(self, query: RolloutQuery | None = None) -> Page[Rollout]:
        """List rollouts. Those without the sort key come last in both orders."""

    @abstractmethod
    async def query_attempts(self, query: AttemptQuery) -> Page[Attempt]:
        """List attempts."""

    @abstractmethod
    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        """Return the newest attempt, None when there is none yet. NotFoundError for an unknown rollout."""

    @abstractmethod
    async def wait_for_rollouts(
        self,
        rollout_ids: Sequence[str],
        *,
        timeout_seconds: float | None = None,
        at_least: int | None = None,
    ) -> list[Rollout]:
        """Wait until all (or ``at_least`` so many) are terminal or time is up; return those that are terminal, in the
        order asked for.
        """


class SpanLog(ABC):
    """Spans, kept as they came, numbered per attempt."""

    @abstractmethod
    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Store spans, all or none; a span id already stored in its trace is answered, not stored twice.

        A span of a running attempt is a sign of life; a span of a finished or superseded one is history and changes
        nothing. A given ``sequence_id`` is kept where it is free in its attempt, else replaced: what comes back tells.
        Spans without an attempt are kept under their rollout or trace and have no ``sequence_id``.

        Raises:
            NotFoundError: a span names a rollout or attempt that does not exist.
        """

    async def add_span(self, span: Span) -> Span:
        """Store one span."""
        return (await self.add_many_spans([span]))[0]

    async def add_otel_span(self, rollout_id: str, attempt_id: str, span: Span) -> Span:
        """Store a span that came without its attempt."""
        return await self.add_span(
            span.model_copy(update={"rollout_id": rollout_id, "attempt_id": attempt_id})
        )

    @abstractmethod
    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        """List spans: those of a rollout or attempt by attempt and sequence id, all others as they came."""

    @abstractmethod
    async def get_many_span_sequence_ids(self, attempts: Sequence[tuple[str, str]]) -> list[int]:
        """Allocate the next sequence id of each (rollout_id, attempt_id), in the order given."""

    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        """Allocate the attempt's next sequence id."""
        return (await self.get_many_span_sequence_ids([(rollout_id, attempt_id)]))[0]


class ResourceBook(ABC):
    """Numbered, immutable versions of what agents use."""

    @abstractmethod
    async def add_resources(
        self, resources: Mapping[str, Resource], *, run_id: str | None = None, resources_id: str | None = None
    ) -> NamedResources:
        """Store a new version. A known ``resources_id`` answers the version that it named first."""

    @abstractmethod
    async def get_resources_by_id(self, resources_id: str) -> NamedResources:
        """Return that version. NotFoundError for an unknown id."""

    @abstractmethod
    async def get_latest_resources(self, *, run_id: str | None = None) -> NamedResources | None:
        """Return the newest version (of the run), None when there is none."""

    @abstractmethod
    async def list_resources(self, query: ResourcesQuery | None = None) -> Page[NamedResources]:
        """List versions."""


class WorkerRegistry(ABC):
    """Who executes rollouts, and whether they still live."""

    @abstractmethod
    async def register_worker(self, worker_id: str, *, host: str = "", pid: int = 0) -> Worker:
        """Add a worker, or refresh its row."""

    @abstractmethod
    async def worker_heartbeat(
        self, worker_id: str, *, attempts: Sequence[str] = (), stats: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Renew the worker and the attempts in its hands.

        Returns:
            Those of ``attempts`` that are no longer the worker's to finish (cancelled, timed out, superseded,
            unknown).

        Raises:
            NotFoundError: the worker is not registered.
        """

    @abstractmethod
    async def get_active_workers(self, *, within_seconds: float = 60.0) -> list[Worker]:
        """Return the workers heard of within that time."""

    @abstractmethod
    async def query_workers(self, query: WorkerQuery | None = None) -> Page[Worker]:
        """List workers."""


class RunBook(ABC):
    """Runs and their metrics."""

    @abstractmethod
    async def add_run(
        self,
        *,
        name: str,
        run_id: str | None = None,
        command: str = "",
        settings: Mapping[str, Any] | None = None,
        git_commit: str | None = None,
    ) -> Run:
        """Open a run. A known ``run_id`` answers the run that it named first."""

    @abstractmethod
    async def update_run(self, run_id: str, *, status: RunStatus) -> Run:
        """Change a run's status. A run may go back to ``running`` when it is resumed."""

    @abstractmethod
    async def query_runs(self, query: RunQuery | None = None) -> Page[Run]:
        """List runs."""

    @abstractmethod
    async def add_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        """Store values of a step; a (name, step) stored again replaces its value, so that a resumed run rewrites
        its past.
        """

    @abstractmethod
    async def query_metrics(self, query: MetricQuery) -> Page[MetricPoint]:
        """List metric points."""


class Retention(ABC):
    """Forgetting: whole runs, or the spans of rollouts that finished long ago. The space goes back to the system."""

    @abstractmethod
    async def delete_run(self, run_id: str) -> dict[str, int]:
        """Delete a run with its rollouts, attempts, spans, metrics, and the resources that no other rollout names.

        Returns:
            How many ``rollouts``, ``attempts``, ``spans``, ``resources`` and ``metrics`` are gone.

        Raises:
            NotFoundError: neither a run nor a rollout has that run id.
            ConflictError: the run is ``running``, or one of its rollouts is open.
        """

    @abstractmethod
    async def delete_spans(self, *, finished_before: float, run_id: str | None = None) -> int:
        """Delete the spans of rollouts (of the run) that are terminal since before that time, and the spans without a
        rollout that were stored before it (only when no run is named). Rollouts, attempts and rewards stay.

        Returns:
            How many spans are gone.
        """


class LightningStore(RolloutQueue, SpanLog, ResourceBook, WorkerRegistry, RunBook, Retention):
    """The store: queue, attempts, spans, resources, workers, runs. An async context manager."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the records are, for people: a file, ``memory``, a database or a URL, without secrets."""

    @abstractmethod
    async def statistics(self, *, run_id: str | None = None) -> dict[str, Any]:
        """Return counts: ``rollouts`` and ``attempts`` by status, ``spans``, ``resources``, ``workers``, ``runs``; of
        the rollouts that are requeuing, ``pausing`` are not to be claimed yet.
        """

    @abstractmethod
    async def health(self) -> dict[str, Any]:
        """Return ``status``, the store's ``identity`` (a uuid made with the file or database),
        ``schema_version``, and ``size_bytes`` where the store knows how large its records are.
        """

    @abstractmethod
    async def open(self) -> None:
        """Take hold of the file or connection. Called by ``async with``."""

    @abstractmethod
    async def close(self) -> None:
        """Write what is left and let go. Waiters return with what they have; later calls raise
        StoreUnavailableError.
        """

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@runtime_checkable
class Backup(Protocol):
    """A store that can be copied to one SQLite file while it serves."""

    async def backup(self, path: str) -> None:
        """Write a consistent copy of the store to a new file; nothing is left there when it fails or is cancelled."""
        ...
