"""The record's half of the client: spans, resources, workers, runs, and forgetting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agl.errors import InvalidRequestError, NotFoundError
from agl.store import wire
from agl.store.base import ResourceBook, Retention, RunBook, SpanLog, WorkerRegistry
from agl.store.client.bodies import (
    COUNTS,
    LATEST_RESOURCES,
    METRIC_PAGE,
    NAMES,
    NUMBERS,
    RESOURCES,
    RESOURCES_PAGE,
    RUN,
    RUN_PAGE,
    SPAN_PAGE,
    WORKER,
    WORKER_PAGE,
    decoded,
    encoded,
    fields_json,
    matches_nothing,
    resources_json,
    segment,
    target,
)
from agl.store.client.caller import Caller
from agl.types import (
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    RecordedRollout,
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


class ClientRecords(SpanLog, ResourceBook, WorkerRegistry, RunBook, Retention):
    """Spans, resources, workers, runs and retention over the wire."""

    _caller: Caller
    _new_id: Callable[[str], str]

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Store spans, together with what others add meanwhile; ``Outbox.add`` says what holds for long lists."""
        lane = await self._caller.lane()
        with lane.visit():
            return await lane.outbox.add(spans)

    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        """List spans."""
        return decoded(SPAN_PAGE, await self._caller.call("GET", target("/v1/spans", query)))

    async def get_many_span_sequence_ids(self, attempts: Sequence[tuple[str, str]]) -> list[int]:
        """Allocate the next sequence id of each attempt. A repeat after a lost answer leaves a gap."""
        lane = await self._caller.lane()
        numbers: list[int] = []
        for start in range(0, len(attempts), wire.MAX_BATCH):
            keys = [
                {"rollout_id": rollout_id, "attempt_id": attempt_id}
                for rollout_id, attempt_id in attempts[start : start + wire.MAX_BATCH]
            ]
            body = encoded({"attempts": keys}, "a list of attempts")
            answer = await self._caller.call("POST", "/v1/spans/sequence", body, lane=lane)
            numbers += decoded(NUMBERS, answer).get("sequence_ids", [])
        return numbers

    async def delete_spans(self, *, finished_before: float, run_id: str | None = None) -> int:
        """Delete spans of rollouts that finished before that time. Not sent twice: the count would be the second's."""
        path = target("/v1/spans", {"finished_before": float(finished_before), "run_id": run_id})
        return decoded(COUNTS, await self._caller.call("DELETE", path, repeatable=False)).get("deleted", 0)

    async def add_resources(
        self, resources: Mapping[str, Resource], *, run_id: str | None = None, resources_id: str | None = None
    ) -> NamedResources:
        """Store a new version."""
        body = resources_json(resources, run_id=run_id, resources_id=resources_id or self._new_id("rs"))
        return decoded(RESOURCES, await self._caller.call("POST", "/v1/resources", body))

    async def get_resources_by_id(self, resources_id: str) -> NamedResources:
        """Return that version."""
        if resources_id == "latest":  # the path of another question
            raise NotFoundError("no resources have the id 'latest': add them before they are used")
        return decoded(RESOURCES, await self._caller.call("GET", f"/v1/resources/{segment(resources_id)}"))

    async def get_latest_resources(self, *, run_id: str | None = None) -> NamedResources | None:
        """Return the newest version."""
        path = target("/v1/resources/latest", {"run_id": run_id})
        return decoded(LATEST_RESOURCES, await self._caller.call("GET", path))

    async def list_resources(self, query: ResourcesQuery | None = None) -> Page[NamedResources]:
        """List versions."""
        path = target("/v1/resources", query or ResourcesQuery())
        return decoded(RESOURCES_PAGE, await self._caller.call("GET", path))

    async def register_worker(self, worker_id: str, *, host: str = "", pid: int = 0) -> Worker:
        """Add a worker, or refresh its row."""
        body = fields_json("a worker", worker_id=worker_id, host=host, pid=pid)
        return decoded(WORKER, await self._caller.call("POST", "/v1/workers", body))

    async def worker_heartbeat(
        self, worker_id: str, *, attempts: Sequence[str] = (), stats: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Renew the worker and the attempts in its hands."""
        body = fields_json(
            f"stats of worker {worker_id}",
            attempts=list(attempts),
            stats=None if stats is None else dict(stats),
        )
        answer = await self._caller.call("POST", f"/v1/workers/{segment(worker_id)}/heartbeat", body)
        return decoded(NAMES, answer).get("lost", [])

    async def get_active_workers(self, *, within_seconds: float = 60.0) -> list[Worker]:
        """Return the workers heard of within that time."""
        asked: dict[str, object] = {"active_within_seconds": float(within_seconds), "limit": 10_000}
        return list(decoded(WORKER_PAGE, await self._caller.call("GET", target("/v1/workers", asked))).items)

    async def query_workers(self, query: WorkerQuery | None = None) -> Page[Worker]:
        """List workers."""
        lane, wanted = await self._caller.lane(), query or WorkerQuery()
        if matches_nothing(wanted):
            return Page(items=[])
        answer = await self._caller.call("GET", target("/v1/workers", wanted), lane=lane)
        return decoded(WORKER_PAGE, answer)

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
        body = fields_json(
            "settings of a run",
            name=name,
            run_id=run_id or self._new_id("run"),
            command=command,
            settings=dict(settings or {}),
            git_commit=git_commit,
        )
        return decoded(RUN, await self._caller.call("POST", "/v1/runs", body))

    async def update_run(self, run_id: str, *, status: RunStatus) -> Run:
        """Change a run's status."""
        body = fields_json("a run's status", status=status)
        return decoded(RUN, await self._caller.call("PATCH", f"/v1/runs/{segment(run_id)}", body))

    async def query_runs(self, query: RunQuery | None = None) -> Page[Run]:
        """List runs."""
        lane, wanted = await self._caller.lane(), query or RunQuery()
        if matches_nothing(wanted):
            return Page(items=[])
        return decoded(RUN_PAGE, await self._caller.call("GET", target("/v1/runs", wanted), lane=lane))

    async def add_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        """Store values of a step."""
        for name, value in values.items():
            if not math.isfinite(value):  # JSON has no NaN: it would arrive as null
                raise InvalidRequestError(
                    f"metric {name} of step {step} is {value}: only finite numbers are stored"
                )
        numbers = {name: float(value) for name, value in values.items()}
        body = fields_json(f"metrics of step {step}", step=step, values=numbers)
        await self._caller.call("POST", f"/v1/runs/{segment(run_id)}/metrics", body)

    async def query_metrics(self, query: MetricQuery) -> Page[MetricPoint]:
        """List metric points."""
        lane = await self._caller.lane()
        if matches_nothing(query):
            return Page(items=[])
        path = target(f"/v1/runs/{segment(query.run_id)}/metrics", query, without="run_id")
        return decoded(METRIC_PAGE, await self._caller.call("GET", path, lane=lane))

    async def restore(
        self,
        *,
        runs: Sequence[Run] = (),
        rollouts: Sequence[RecordedRollout] = (),
        spans: Sequence[Span] = (),
    ) -> dict[str, int]:
        """Store what another store recorded, in one request. Repeated safely: what is known stays as it is."""
        records = {"runs": runs, "rollouts": rollouts, "spans": spans}
        plain = {name: [one.model_dump(mode="json") for one in some] for name, some in records.items()}
        body = encoded(plain, "the records to restore")
        return decoded(COUNTS, await self._caller.call("POST", "/v1/restore", body))

    async def delete_run(self, run_id: str) -> dict[str, int]:
        """Delete a run with all that belongs to it. Not sent twice: the second would not find it."""
        path = f"/v1/runs/{segment(run_id)}"
        return decoded(COUNTS, await self._caller.call("DELETE", path, repeatable=False))
