"""What agl diff compares."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from compared_runs import evaluation, made_run

from agl.cli.compared import common_evaluations, evaluations_of, side_named
from agl.errors import ConfigError
from agl.store.sqlite import SqliteLightningStore
from agl.types import PromptTemplate, ProxyLLM


def test_a_run_is_its_settings_its_best_prompts_and_its_last_numbers(in_folder: Path) -> None:
    made_run("a", width=4, best="better")
    side = side_named("a", None, None)
    assert (side.kind, side.folder) == ("run", Path("runs/a"))
    assert {name: prompt.template for name, prompt in side.prompts.items()} == {"prompt": "better"}
    assert side.settings == {"name": "light", "algorithm.beam_width": 4}
    assert side.resources == {"size": 3}
    assert side.numbers == {"val/reward": 0.5}
    assert side_named("runs/a", None, None).settings == side.settings


def test_a_file_is_one_prompt_in_the_language_of_its_ending(in_folder: Path) -> None:
    Path("p.txt").write_text("{q}")
    Path("p.jinja").write_text("{{ q }}")
    assert side_named("p.txt", None, None).prompts["prompt"].engine == "f-string"
    assert side_named("p.jinja", None, None).prompts["prompt"].engine == "jinja2"
    Path("p.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"p\.bin cannot be read as text"):
        side_named("p.bin", None, None)
    Path("folder").mkdir()
    with pytest.raises(ConfigError, match=r"folder is no run: it has no settings\.yaml"):
        side_named("folder", None, None)


async def _records(folder: Path) -> None:
    async with SqliteLightningStore(str(folder / "store.sqlite")) as store:
        await store.add_run(
            name="light", run_id="stored", settings={"seed": 4, "run_dir": "x", "resources": {}}
        )
        resources = {
            "p": PromptTemplate(template="t"),
            "llm": ProxyLLM(base_url="http://gone", model="m", api_key="k"),
        }
        await store.add_resources(resources, run_id="stored", resources_id="rs-1")
        for step in range(3):
            await store.add_metrics("stored", step, {"val/reward": step / 4})


def test_resources_and_runs_are_found_by_their_id_in_a_store(in_folder: Path) -> None:
    asyncio.run(_records(made_run("a")))
    named = side_named("rs-1", None, None)
    assert (named.kind, named.prompts["p"].template) == ("resources", "t")
    assert named.resources == {"llm.kind": "proxy_llm", "llm.model": "m", "llm.policy_version": 0}
    run = side_named("stored", None, "a")
    assert (run.kind, run.settings, run.numbers) == ("run", {"seed": 4}, {"val/reward": 0.5})
    assert run.prompts["p"].template == "t"
    with pytest.raises(ConfigError, match="no resources or run is called 'rs-2'"):
        side_named("rs-2", None, None)


def test_evaluations_of_both_with_tasks_in_common_are_found_the_newest_first(in_folder: Path) -> None:
    made_run("a")
    made_run("b")
    evaluation("old", "runs/a", "t1")
    evaluation("new", "a", "t2", "t3")
    evaluation("other", "base", "t3", against="runs/b")
    for number, name in enumerate(("old", "other", "new")):
        os.utime(Path("runs") / name / "evaluation.json", (number, number))
    first, second = side_named("a", None, None), side_named("b", None, None)
    assert [folder.name for folder, _ in evaluations_of(first)] == ["new", "old"]
    found = common_evaluations(first, second)
    assert found is not None
    ((one, _), (other, report)) = found
    assert (one.name, other.name, report["contestant"]) == ("new", "other", "runs/b")
    assert (
        common_evaluations(first, side_named("old", None, None)) is not None
    )  # an evaluation stands for itself
    (Path("runs") / "other" / "evaluation.json").write_text("damaged")
    assert common_evaluations(first, second) is None
