"""The record's half of the store: spans, resources, workers, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agl.errors import InvalidRequestError
from agl.store.base import ResourceBook, RunBook, SpanLog, WorkerRegistry
from agl.store.sqlite import queries, runs, span_queries, workers
from agl.store.sqlite import resources as versions
from agl.store.sqlite import spans as span_rows
from agl.store.sqlite.access import Access
from agl.types import (
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    Resource,
    ResourcesQuery,
    Run,
    RunQuery,
    RunStatus,
    Span,
    SpanQuery,
    Worker,
    WorkerQuery,
)


class SqliteRecords(SpanLog, ResourceBook, WorkerRegistry, RunBook):
    """Spans, resources, workers and runs in SQLite."""

    _access: Access

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Store spans, all or none."""
        wanted = list(spans)
        return await self._access.write(lambda transaction: span_rows.add(transaction, wanted))

    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        """List spans."""
        return await self._access.read(lambda db: span_queries.spans(db, query))

    async def get_many_span_sequence_ids(self, attempts: Sequence[tuple[str, str]]) -> list[int]:
        """Allocate the next sequence id of each attempt."""
        wanted = [(rollout_id, attempt_id) for rollout_id, attempt_id in attempts]
        return await self._access.write(lambda transaction: span_rows.sequence_ids(transaction, wanted))

    async def add_resources(
        self, resources: Mapping[str, Resource], *, run_id: str | None = None, resources_id: str | None = None
    ) -> NamedResources:
        """Store a new version."""
        return await self._access.write(
            lambda transaction: versions.add(transaction, resources, run_id, resources_id)
        )

    async def get_resources_by_id(self, resources_id: str) -> NamedResources:
        """Return that version."""
        return await self._access.read(lambda db: versions.get(db, resources_id))

    async def get_latest_resources(self, *, run_id: str | None = None) -> NamedResources | None:
        """Return the newest version."""
        return await self._access.read(lambda db: versions.latest(db, run_id))

    async def list_resources(self, query: ResourcesQuery | None = None) -> Page[NamedResources]:
        """List versions."""
        wanted = query or ResourcesQuery()
        return await self._access.read(lambda db: queries.resources_rows(db, wanted))

    async def register_worker(self, worker_id: str, *, host: str = "", pid: int = 0) -> Worker:
        """Add a worker, or refresh its row."""
        if not worker_id:
            raise InvalidRequestError("worker_id is empty: a worker needs a name of its own")
        return await self._access.write(
            lambda transaction: workers.register(transaction, worker_id, host, pid)
        )

    async def worker_heartbeat(
        self, worker_id: str, *, attempts: Sequence[str] = (), stats: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Renew the worker and the attempts in its hands."""
        held = list(attempts)
        return await self._access.write(
            lambda transaction: workers.heartbeat(transaction, worker_id, held, stats)
        )

    async def get_active_workers(self, *, within_seconds: float = 60.0) -> list[Worker]:
        """Return the workers heard of within that time."""
        now = self._access.clock()
        return await self._access.read(lambda db: workers.active(db, now, within_seconds))

    async def query_workers(self, query: WorkerQuery | None = None) -> Page[Worker]:
        """List workers."""
        wanted, now = query or WorkerQuery(), self._access.clock()
        return await self._access.read(lambda db: queries.worker_rows(db, wanted, now))

    async def add_run(
        self,
        *,
        name: str,
        run_id: str | None = None,
        command: str = "",
        settings: Mapping[str, Any] | None = None,
        git_commit: str | None = None,
    ) -> Run:
        """Open a run."""
        return await self._access.write(
            lambda transaction: runs.add(
                transaction,
                name=name,
                run_id=run_id,
                command=command,
                settings=settings or {},
                git_commit=git_commit,
            )
        )

    async def update_run(self, run_id: str, *, status: RunStatus) -> Run:
        """Change a run's status."""
        return await self._access.write(lambda transaction: runs.update(transaction, run_id, status))

    async def query_runs(self, query: RunQuery | None = None) -> Page[Run]:
        """List runs."""
        wanted = query or RunQuery()
        return await self._access.read(lambda db: queries.run_rows(db, wanted))

    async def add_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        """Store values of a step."""
        wanted = dict(values)
        await self._access.write(lambda transaction: runs.add_metrics(transaction, run_id, step, wanted))

    async def query_metrics(self, query: MetricQuery) -> Page[MetricPoint]:
        """List metric points."""
        return await self._access.read(lambda db: queries.metrics(db, query))
