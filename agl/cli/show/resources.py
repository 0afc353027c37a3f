"""Resources and workers: what agents were given, without secrets, and who ran them."""

from __future__ import annotations

from typing import Any, cast

from agl.cli.lists.resources import in_brief
from agl.cli.lists.workers import WorkerState
from agl.cli.text import age, fields, moment, wrapped
from agl.types import Json, NamedResources, PromptTemplate, Resource
from agl.types.record import Record

_PLAIN = ("none", "")
"""Keys that are no secret: what stands where a server asks for none."""


def resources_lines(resources: NamedResources, *, is_latest: bool, width: int) -> list[str]:
    """Return a version of resources for people: prompts as their text, models and weights by their fields."""
    version = f"{resources.version}{' (the latest)' if is_latest else ''}"
    lines = fields(
        [
            ("Resources", resources.resources_id),
            ("Run", resources.run_id),
            ("Version", version),
            ("Created", moment(resources.created_at)),
        ],
        width=width,
    )
    for name, resource in sorted(resources.resources.items()):
        lines += ["", *wrapped(f"{name}: {in_brief(resource)}", width=width)]
        lines += _resource_lines(resource, width=width)
    return lines


def _resource_lines(resource: Resource, *, width: int) -> list[str]:
    if isinstance(resource, PromptTemplate):
        facts = f"engine {resource.engine}" + (f", made from {resource.parent}" if resource.parent else "")
        return [f"  ({facts})", *wrapped(resource.template, width=width, indent="  | ")]
    values = safe_resource(resource)
    if not isinstance(values, dict):
        return wrapped(values, width=width, indent="  ")
    lines: list[str] = []
    for name, value in cast("dict[str, Json]", values).items():
        if name != "kind" and value not in (None, [], {}, ()):
            label = f"  {name}"
            lines += fields([(label, value)], width=width, label_width=max(20, len(label) + 2))
    return lines


def safe_resource(resource: Resource) -> Json:
    """Return a resource as plain values, with ``***`` for keys, tokens, and the passwords of URLs."""
    values = resource.model_dump(mode="json") if isinstance(resource, Record) else resource
    return _safe("", values)


def _safe(name: str, value: Json) -> Json:
    from agl.config.settings import HIDDEN, is_secret, without_password

    if isinstance(value, dict):
        return {key: _safe(key, one) for key, one in cast("dict[str, Json]", value).items()}
    if isinstance(value, list):
        return [_safe(name, one) for one in cast("list[Json]", value)]
    if not isinstance(value, str):
        return value
    return HIDDEN if is_secret(name) and value not in _PLAIN else without_password(value)


def resources_as_json(resources: NamedResources, *, is_latest: bool) -> dict[str, Any]:
    """Return a version as plain values, without secrets."""
    values = resources.model_dump(mode="json", exclude={"resources"})
    safe = {name: safe_resource(resource) for name, resource in resources.resources.items()}
    return {"kind": "resources", **values, "is_latest": is_latest, "resources": safe}


def worker_lines(state: WorkerState, *, now: float, width: int) -> list[str]:
    """Return a worker for people; ``now`` is the time that ages count from."""
    worker = state.worker
    heard = f"{moment(worker.last_heartbeat_at)}, {age(now - worker.last_heartbeat_at)} ago"
    pairs: list[tuple[str, object]] = [
        ("Worker", worker.worker_id),
        ("Status", state.status),
        ("Host", f"{worker.host or '?'}, process {worker.pid or '?'}"),
        ("Registered", moment(worker.registered_at)),
        ("Heard of", heard),
    ]
    if state.rollout_ids:
        pairs.append(("Works on", "\n".join(state.rollout_ids)))
    for name, value in worker.stats.items():
        if name != "ended" and value not in (None, {}, []):
            pairs.append((name.replace("_", " ").capitalize(), value))
    return fields(pairs, width=width, label_width=16)
