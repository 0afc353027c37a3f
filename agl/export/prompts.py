"""what=prompts: the chosen prompts of a run as text files, JSON, or a Python module of constants."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agl.algorithms.prompts.archive import FOLDER as PROMPTS
from agl.algorithms.prompts.archive import best_file
from agl.errors import AglError, ConfigError, NotFoundError
from agl.export.origin import Origin
from agl.export.selection import Exported, OnRollout, unheard
from agl.export.tables import check_format
from agl.export.whole import appearing
from agl.launch.finished_runs import best_prompts
from agl.store.base import LightningStore
from agl.types import NamedResources, PromptTemplate, ResourcesQuery

PromptFormat = Literal["files", "json", "python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPrompts:
    """Prompts by resource name, and where they are from."""

    prompts: Mapping[str, PromptTemplate]
    source: str


@dataclass(frozen=True, kw_only=True)
class PromptExport:
    """The prompts that a run chose, else those of its newest resources.

    Args:
        format: ``files``, one text a prompt; ``json``; or ``python``, a module with a constant a prompt.
        resources_id: the prompts of this version instead.
        run_id: of this run, where the store has several.
    """

    format: PromptFormat = "files"
    resources_id: str | None = None
    run_id: str | None = None

    def __post_init__(self) -> None:
        check_format(self.format, PromptFormat)
        if self.resources_id is not None and self.run_id is not None:
            raise ConfigError("resources_id and run_id: an id names its version alone, leave run_id out")

    def is_in(self, run_dir: Path) -> bool:
        """Whether the run chose prompts."""
        return (run_dir / PROMPTS / "best.json").is_file()

    def default_path(self, origin: Origin) -> Path:
        """Return what is written where nothing is named."""
        del origin
        return Path({"files": "prompts", "json": "prompts.json", "python": "prompts.py"}[self.format])

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = unheard
    ) -> Exported:
        """Write the prompts.

        Raises:
            ConfigError: it is there already, or no resources have that id.
            AglError: there are no prompts.
        """
        del on_rollout
        with appearing(path, force=force) as partial:
            found = await self._found(origin)
            if self.format == "files":
                partial.mkdir()
                for name, prompt in found.prompts.items():
                    (partial / best_file(partial, name, prompt).name).write_text(
                        prompt.template, encoding="utf-8", newline=""
                    )
            else:
                text = json_text(found) if self.format == "json" else module_text(found)
                partial.write_text(text, encoding="utf-8", newline="")
        return Exported(path=path, counts={"prompts": len(found.prompts)}, notes=(f"from {found.source}",))

    async def _found(self, origin: Origin) -> FoundPrompts:
        if self.resources_id is None and self.run_id is None and origin.run_dir is not None:
            chosen = best_prompts(origin.run_dir)
            if chosen:
                prompts = {name: PromptTemplate(**prompt) for name, prompt in chosen.items()}
                return FoundPrompts(prompts=prompts, source=str(origin.run_dir / "prompts" / "best.json"))
        async with origin.opened() as store:
            named = await self._newest(store)
            if named is None:
                raise AglError(f"nothing to export: {store.location} has no resources with prompts")
            prompts = _prompts_of(named)
            if not prompts:
                raise AglError(f"nothing to export: resources {named.resources_id} have no prompts")
            return FoundPrompts(prompts=prompts, source=f"resources {named.resources_id} of {store.location}")

    async def _newest(self, store: LightningStore) -> NamedResources | None:
        """The version that is asked for, else the newest one with prompts."""
        if self.resources_id is not None:
            try:
                return await store.get_resources_by_id(self.resources_id)
            except NotFoundError as error:
                raise ConfigError(
                    f"resources_id={self.resources_id}: {store.location} has no such resources; see agl ls resources"
                ) from error
        query = ResourcesQuery(run_id=self.run_id, order="desc", limit=50)
        while True:
            page = await store.list_resources(query)
            with_prompts = next((one for one in page.items if _prompts_of(one)), None)
            if with_prompts is not None or page.next_cursor is None:
                return with_prompts
            query = query.model_copy(update={"cursor": page.next_cursor})


def _prompts_of(named: NamedResources) -> dict[str, PromptTemplate]:
    return {name: one for name, one in named.resources.items() if isinstance(one, PromptTemplate)}


def json_text(found: FoundPrompts) -> str:
    """Return the prompts as one JSON document."""
    prompts = {name: prompt.model_dump(mode="json") for name, prompt in found.prompts.items()}
    return json.dumps({"source": found.source, "prompts": prompts}, ensure_ascii=False, indent=2) + "\n"


def module_text(found: FoundPrompts) -> str:
    """Return the prompts as a Python module: a constant each, and ``PROMPTS`` with all by their names."""
    names = constant_names(list(found.prompts))
    lines = [f"# Prompts from {json.dumps(found.source)}, written by agl export.", ""]
    for name, prompt in found.prompts.items():
        lines += [f"# {json.dumps(name)}: {prompt.engine} template, version {prompt.version}"]
        lines += [f"{names[name]} = (", *(f"    {part!r}" for part in _parts(prompt.template)), ")", ""]
    lines += ["PROMPTS = {", *(f"    {name!r}: {constant}," for name, constant in names.items()), "}", ""]
    return "\n".join(lines)


def _parts(text: str) -> list[str]:
    """The text in lines with their breaks; one empty part where there is none."""
    return text.splitlines(keepends=True) or [""]


def constant_names(names: list[str]) -> dict[str, str]:
    """Return a Python constant's name for each name, no two the same."""
    taken = {"PROMPTS"}
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "PROMPT"
        plain = f"PROMPT_{plain}" if plain[0].isdigit() or keyword.iskeyword(plain) else plain
        constant, number = plain, 1
        while constant in taken:
            number += 1
            constant = f"{plain}_{number}"
        taken.add(constant)
        found[name] = constant
    return found
