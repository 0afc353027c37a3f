"""The record's half of the store: spans, resources, workers, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agl.errors import InvalidRequestError
from agl.store.base import ResourceBook, RunBook, SpanLog, WorkerRegistry
from agl.store.mongo import queries, runs, workers
from agl.store.mongo import resources as versions
from agl.store.mongo import spans as span_documents
from agl.store.mongo.access import Access
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


class MongoRecords(SpanLog, ResourceBook, WorkerRegistry, RunBook):
    """Spans, resources, workers and runs in MongoDB."""

    _access: Access

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Store spans, all or none."""
        with self._access.visit():
            return await span_documents.add(self._access, list(spans))

    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        """List spans."""
        with self._access.visit():
            return await queries.spans(self._access, query)

    async def get_many_span_sequence_ids(self, attempts: Sequence[tuple[str, str]]) -> list[int]:
        """Allocate the next sequence id of each attempt."""
        with self._access.visit():
            return await span_documents.sequence_ids(self._access, list(attempts))

    async def add_resources(
        self, resources: Mapping[str, Resource], *, run_id: str | None = None, resources_id: str | None = None
    ) -> NamedResources:
        """Store a new version."""
        with self._access.visit():
            return await versions.add(self._access, resources, run_id=run_id, resources_id=resources_id)

    async def get_resources_by_id(self, resources_id: str) -> NamedResources:
        """Return that version."""
        with self._access.visit():
            return await versions.get(self._access, resources_id)

    async def get_latest_resources(self, *, run_id: str | None = None) -> NamedResources | None:
        """Return the newest version."""
        with self._access.visit():
            return await versions.latest(self._access, run_id)

    async def list_resources(self, query: ResourcesQuery | None = None) -> Page[NamedResources]:
        """List versions."""
        with self._access.visit():
            return await queries.resources_list(self._access, query or ResourcesQuery())

    async def register_worker(self, worker_id: str, *, host: str = "", pid: int = 0) -> Worker:
        """Add a worker, or refresh its document."""
        if not worker_id:
            raise InvalidRequestError("worker_id is empty: a worker needs a name of its own")
        with self._access.visit():
            return await workers.register(self._access, worker_id, host, pid)

    async def worker_heartbeat(
        self, worker_id: str, *, attempts: Sequence[str] = (), stats: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Renew the worker and the attempts in its hands."""
        with self._access.visit():
            return await workers.heartbeat(self._access, worker_id, list(attempts), stats)

    async def get_active_workers(self, *, within_seconds: float = 60.0) -> list[Worker]:
        """Return the workers heard of within that time."""
        with self._access.visit():
            return await workers.active(self._access, within_seconds)

    async def query_workers(self, query: WorkerQuery | None = None) -> Page[Worker]:
        """List workers."""
        with self._access.visit():
            return await queries.worker_list(self._access, query or WorkerQuery())

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
        with self._access.visit():
            return await runs.add(
                self._access,
                name=name,
                run_id=run_id,
                command=command,
                settings=settings or {},
                git_commit=git_commit,
            )

    async def update_run(self, run_id: str, *, status: RunStatus) -> Run:
        """Change a run's status."""
        with self._access.visit():
            return await runs.update(self._access, run_id, status)

    async def query_runs(self, query: RunQuery | None = None) -> Page[Run]:
        """List runs."""
        with self._access.visit():
            return await queries.run_list(self._access, query or RunQuery())

    async def add_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        """Store values of a step."""
        with self._access.visit():
            await runs.add_metrics(self._access, run_id, step, dict(values))

    async def query_metrics(self, query: MetricQuery) -> Page[MetricPoint]:
        """List metric points."""
        with self._access.visit():
            return await queries.metrics(self._access, query)
