"""Operations on resources, workers, runs and metrics."""

from __future__ import annotations

from pydantic import Field

from agl.store import wire
from agl.store.server.operation import Body, Call, Operation
from agl.types import (
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    ProxyLLM,
    ResourcesQuery,
    Run,
    RunQuery,
    Worker,
    WorkerQuery,
)
from agl.types.query import ListQuery
from agl.types.record import Record


class OfRun(Record):
    """A parameter that narrows to one run."""

    run_id: str | None = None


class WorkerList(WorkerQuery):
    """Parameters of GET /v1/workers."""

    active_within_seconds: float | None = Field(default=None, ge=0.0)
    """Those heard of within that time, all in one page; the other parameters do not count then."""


class MetricList(ListQuery):
    """Parameters of GET /v1/runs/{run_id}/metrics."""

    names: tuple[str, ...] | None = None
    min_step: int | None = None


class Lost(Record):
    """What a heartbeat answers: attempts that are no longer the worker's to finish."""

    lost: tuple[str, ...]


def operations() -> tuple[Operation, ...]:
    """Return the operations of this module."""
    return (*_workers(), *_resources(), *_runs())


def _workers() -> tuple[Operation, ...]:
    return (
        Operation(
            method="POST",
            path="/v1/workers/{worker_id}/heartbeat",
            run=_heartbeat,
            summary="Renew a worker and the attempts in its hands",
            body=Body(kind=wire.Heartbeat, required=False),
            answers=Lost,
            writes=True,
            may=("not_found",),
        ),
        Operation(
            method="POST",
            path="/v1/workers",
            run=_register_worker,
            summary="Add a worker, or refresh its row",
            body=Body(kind=wire.NewWorker),
            answers=Worker,
            writes=True,
        ),
        Operation(
            method="GET",
            path="/v1/workers",
            run=_query_workers,
            summary="List workers",
            parameters=WorkerList,
            answers=Page[Worker],
        ),
    )


def _resources() -> tuple[Operation, ...]:
    return (
        Operation(
            method="GET",
            path="/v1/resources/latest",
            run=_latest_resources,
            summary="The newest resources (of a run), or null",
            parameters=OfRun,
            answers=NamedResources | None,
        ),
        Operation(
            method="GET",
            path="/v1/resources/{resources_id}",
            run=_resources_by_id,
            summary="One version of the resources",
            answers=NamedResources,
            access=_are_own_resources,
            may=("not_found",),
        ),
        Operation(
            method="POST",
            path="/v1/resources",
            run=_add_resources,
            summary="Store a new version of the resources",
            body=Body(kind=wire.NewResources),
            answers=NamedResources,
            writes=True,
            may=("conflict",),
        ),
        Operation(
            method="GET",
            path="/v1/resources",
            run=_list_resources,
            summary="List versions of the resources",
            parameters=ResourcesQuery,
            answers=Page[NamedResources],
        ),
    )


def _runs() -> tuple[Operation, ...]:
    return (
        Operation(
            method="POST",
            path="/v1/runs",
            run=_add_run,
            summary="Open a run",
            body=Body(kind=wire.NewRun),
            answers=Run,
            writes=True,
        ),
        Operation(
            method="GET",
            path="/v1/runs",
            run=_query_runs,
            summary="List runs",
            parameters=RunQuery,
            answers=Page[Run],
        ),
        Operation(
            method="PATCH",
            path="/v1/runs/{run_id}",
            run=_update_run,
            summary="Change a run's status",
            body=Body(kind=wire.RunUpdate),
            answers=Run,
            writes=True,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="DELETE",
            path="/v1/runs/{run_id}",
            run=_delete_run,
            summary="Delete a run with its rollouts, attempts, spans, resources and metrics",
            answers=dict[str, int],
            writes=True,
            may=("not_found", "conflict"),
        ),
        Operation(
            method="POST",
            path="/v1/runs/{run_id}/metrics",
            run=_add_metrics,
            summary="Store metric values of a step",
            body=Body(kind=wire.Metrics),
            answers=None,
            writes=True,
            may=("not_found",),
        ),
        Operation(
            method="GET",
            path="/v1/runs/{run_id}/metrics",
            run=_query_metrics,
            summary="List metric points of a run",
            parameters=MetricList,
            answers=Page[MetricPoint],
            may=("not_found",),
        ),
    )


async def _are_own_resources(call: Call, attempt: tuple[str, str]) -> bool:
    return (await call.store.get_rollout_by_id(attempt[0])).resources_id == call.ids[0]


async def _heartbeat(call: Call) -> object:
    beat: wire.Heartbeat = call.body
    lost = await call.store.worker_heartbeat(call.ids[0], attempts=beat.attempts, stats=beat.stats)
    return {"lost": lost}


async def _register_worker(call: Call) -> object:
    worker: wire.NewWorker = call.body
    return await call.store.register_worker(worker.worker_id, host=worker.host, pid=worker.pid)


async def _query_workers(call: Call) -> object:
    wanted: WorkerList = call.parameters
    if wanted.active_within_seconds is None:
        return await call.store.query_workers(wanted)
    active = await call.store.get_active_workers(within_seconds=wanted.active_within_seconds)
    return Page[Worker](items=active)


async def _latest_resources(call: Call) -> object:
    wanted: OfRun = call.parameters
    return await call.store.get_latest_resources(run_id=wanted.run_id)


async def _resources_by_id(call: Call) -> object:
    found = await call.store.get_resources_by_id(call.ids[0])
    return found if call.attempt is None else _without_secrets(found, *call.attempt)


def _without_secrets(resources: NamedResources, rollout_id: str, attempt_id: str) -> NamedResources:
    """The resources with the attempt's own key in place of the proxy's secret."""
    narrowed = {
        name: value.model_copy(update={"api_key": value.key_of_attempt(rollout_id, attempt_id)})
        if isinstance(value, ProxyLLM)
        else value
        for name, value in resources.resources.items()
    }
    return resources.model_copy(update={"resources": narrowed})


async def _add_resources(call: Call) -> object:
    new: wire.NewResources = call.body
    return await call.store.add_resources(new.resources, run_id=new.run_id, resources_id=new.resources_id)


async def _list_resources(call: Call) -> object:
    return await call.store.list_resources(call.parameters)


async def _add_run(call: Call) -> object:
    new: wire.NewRun = call.body
    return await call.store.add_run(**new.__dict__)


async def _query_runs(call: Call) -> object:
    return await call.store.query_runs(call.parameters)


async def _update_run(call: Call) -> object:
    update: wire.RunUpdate = call.body
    return await call.store.update_run(call.ids[0], status=update.status)


async def _delete_run(call: Call) -> object:
    return await call.store.delete_run(call.ids[0])


async def _add_metrics(call: Call) -> object:
    metrics: wire.Metrics = call.body
    await call.store.add_metrics(call.ids[0], metrics.step, metrics.values)


async def _query_metrics(call: Call) -> object:
    wanted: MetricList = call.parameters
    return await call.store.query_metrics(MetricQuery(run_id=call.ids[0], **wanted.__dict__))
