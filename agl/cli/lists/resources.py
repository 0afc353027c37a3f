"""Resources as a list: the versions, what is in them, and which are the latest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agl.cli.text import Column, age, counted, table, wrapped
from agl.store.base import LightningStore
from agl.types import (
    LLM,
    ModelEndpoint,
    NamedResources,
    PromptTemplate,
    ProxyLLM,
    Resource,
    ResourcesQuery,
    Weights,
)

COLUMNS = (
    Column(title="resources", is_id=True),
    Column(title="version", align="right"),
    Column(title="latest"),
    Column(title="age", align="right"),
    Column(title="run", rank=2, least=12),
    Column(title="what", rank=1, least=16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of resources.

    Args:
        resources: the version.
        latest: ``store`` where it is the newest of all, ``run`` where it is its run's newest, else None.
    """

    resources: NamedResources
    latest: str | None


async def versions_of_store(store: LightningStore, limit: int, *, run_id: str | None = None) -> list[Version]:
    """Return the newest versions (of the run)."""
    page = await store.list_resources(ResourcesQuery(run_id=run_id, order="desc", limit=limit))
    newest = await store.get_latest_resources()
    latest: dict[str | None, str] = {}
    for one in page.items:  # newest first: the first of a run is its latest
        latest.setdefault(one.run_id, one.resources_id)
    versions: list[Version] = []
    for one in page.items:
        word = "run" if one.run_id is not None and latest[one.run_id] == one.resources_id else None
        if newest is not None and newest.resources_id == one.resources_id:
            word = "store"
        versions.append(Version(resources=one, latest=word))
    return versions


def version_lines(versions: Sequence[Version], *, place: str, now: float, width: int) -> list[str]:
    """Return the versions as a table; ``now`` is the time that ages count from."""
    if not versions:
        return [f"No resources in {place}"]
    of_one_run = len({version.resources.run_id for version in versions}) == 1
    shown = [place for place, column in enumerate(COLUMNS) if column.title != "run" or not of_one_run]
    rows = [_row(version, now) for version in versions]
    lines = table(
        [COLUMNS[place] for place in shown], [[row[place] for place in shown] for row in rows], width=width
    )
    return [
        *lines,
        "",
        *wrapped(f"{counted(len(versions), 'version')}, newest first, in {place}", width=width),
    ]


def _row(version: Version, now: float) -> list[object]:
    one = version.resources
    what = ", ".join(f"{name}: {in_brief(resource)}" for name, resource in sorted(one.resources.items()))
    return [one.resources_id, one.version, version.latest, age(now - one.created_at), one.run_id, what]


def in_brief(resource: Resource) -> str:
    """Return what a resource is, in a few words and without secrets."""
    match resource:
        case ProxyLLM():
            return f"model {resource.model} v{resource.policy_version}"
        case LLM():
            return f"model {resource.model}"
        case ModelEndpoint():
            return f"endpoint of {resource.model}"
        case PromptTemplate():
            return f"prompt {resource.template_id} v{resource.version}"
        case Weights():
            return f"weights v{resource.policy_version}"
        case _:
            return "JSON"
