"""what=prompts: files, JSON, Python."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.algorithms.prompts.archive import Archive
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.scoring import Scores
from agl.errors import AglError, ConfigError
from agl.export.origin import Origin
from agl.export.prompts import FoundPrompts, PromptExport, constant_names, module_text
from agl.store.opening import store_to_change, store_to_read
from agl.types import PromptTemplate

PROMPTS = {
    "system": PromptTemplate(template="Be brief: {task}\nAlways.\n"),
    "judge/one": PromptTemplate(template="{{ x }}", engine="jinja2", version=3),
}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    candidate = Candidate(parent=None, made_by="gepa", prompts=PROMPTS)
    Archive(folder).save_best(candidate, Scores(rewards={0: 1.0}, failed={}), "rs-1")
    return folder


async def test_each_prompt_is_a_file_of_its_text(run_dir: Path, tmp_path: Path) -> None:
    export = PromptExport()
    assert export.is_in(run_dir)
    assert not export.is_in(tmp_path)
    done = await export.write(Origin(run_dir=run_dir), tmp_path / "p")
    assert {file.name: file.read_text() for file in (tmp_path / "p").iterdir()} == {
        "system.txt": "Be brief: {task}\nAlways.\n",
        "judge%2Fone.jinja": "{{ x }}",
    }
    assert (done.counts, done.notes) == ({"prompts": 2}, (f"from {run_dir / 'prompts' / 'best.json'}",))


async def test_json_has_all_of_each_prompt(run_dir: Path, tmp_path: Path) -> None:
    await PromptExport(format="json").write(Origin(run_dir=run_dir), tmp_path / "p.json")
    found = json.loads((tmp_path / "p.json").read_text())
    assert {name: PromptTemplate(**one) for name, one in found["prompts"].items()} == PROMPTS


async def test_python_has_a_constant_a_prompt(run_dir: Path, tmp_path: Path) -> None:
    await PromptExport(format="python").write(Origin(run_dir=run_dir), tmp_path / "p.py")
    module = runpy.run_path(str(tmp_path / "p.py"))
    assert module["SYSTEM"] == PROMPTS["system"].template
    assert module["JUDGE_ONE"] == "{{ x }}"
    assert module["PROMPTS"] == {name: one.template for name, one in PROMPTS.items()}
    assert '# "judge/one": jinja2 template, version 3' in (tmp_path / "p.py").read_text()


@given(st.dictionaries(st.text(), st.text(alphabet=st.characters()), max_size=4))
def test_the_module_is_valid_python_for_any_content(texts: dict[str, str]) -> None:
    prompts = {name: PromptTemplate.trusted(_fields(text)) for name, text in texts.items()}
    source = module_text(FoundPrompts(prompts=prompts, source='quo"te\nand line'))
    names: dict[str, Any] = {}
    exec(compile(source.encode("utf-8"), "p.py", "exec"), names)
    assert names["PROMPTS"] == texts
    assert {names[constant] for constant in constant_names(list(texts)).values()} == set(texts.values())


def _fields(text: str) -> dict[str, Any]:
    return {"kind": "prompt_template", "template": text, "engine": "f-string", "version": 1, "parent": None}


def test_constants_have_names_of_their_own() -> None:
    assert constant_names(["a b", "a-b", "1", "é", "prompts", "class"]) == {
        "a b": "A_B",
        "a-b": "A_B_2",
        "1": "PROMPT_1",
        "é": "PROMPT",
        "prompts": "PROMPTS_2",
        "class": "CLASS",
    }


async def stored(folder: Path) -> Origin:
    folder.mkdir()
    async with store_to_change(folder / "store.sqlite") as store:
        await store.add_resources(dict(PROMPTS), resources_id="first")
        await store.add_resources({"system": PromptTemplate(template="newer"), "n": 1}, resources_id="second")
        await store.add_resources({"n": 2}, resources_id="numbers", run_id="r")
    return Origin(store=lambda: store_to_read(str(folder)), run_dir=folder)


async def test_without_a_choice_they_are_those_of_the_newest_resources_that_have_any(tmp_path: Path) -> None:
    origin = await stored(tmp_path / "run")
    await PromptExport().write(origin, tmp_path / "p")
    assert (tmp_path / "p" / "system.txt").read_text() == "newer"
    await PromptExport(resources_id="first").write(origin, tmp_path / "q")
    assert (tmp_path / "q" / "system.txt").read_text().startswith("Be brief")


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        (
            {"resources_id": "x"},
            ConfigError,
            "resources_id=x: .* has no such resources; see agl ls resources",
        ),
        ({"resources_id": "numbers"}, AglError, "resources numbers have no prompts"),
        ({"run_id": "r"}, AglError, "has no resources with prompts"),
    ],
)
async def test_prompts_that_are_not_there(
    tmp_path: Path, settings: dict[str, Any], kind: type[AglError], message: str
) -> None:
    origin = await stored(tmp_path / "run")
    with pytest.raises(kind, match=message):
        await PromptExport(**settings).write(origin, tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_an_id_and_a_run_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="leave run_id out"):
        PromptExport(resources_id="a", run_id="b")
