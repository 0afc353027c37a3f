"""Candidates: what identifies them, and which prompts a search begins with."""

from __future__ import annotations

import pytest

from agl.algorithms.prompts.candidate import Candidate, first_candidate
from agl.errors import ConfigError
from agl.types import LLM, PromptTemplate

ONE = PromptTemplate(template="Answer {task}")
TWO = PromptTemplate(template="Check {answer}")


def test_equal_prompts_are_one_candidate_however_they_were_found() -> None:
    first = Candidate(prompts={"a": ONE, "b": TWO})
    there_and_back = first.changed("a", "Solve {task}", made_by="x").changed(
        "a", "Answer {task}", made_by="y"
    )
    assert there_and_back.candidate_id == first.candidate_id
    assert Candidate(prompts={"b": TWO, "a": ONE}).candidate_id == first.candidate_id
    assert Candidate(prompts={"a": TWO, "b": ONE}).candidate_id != first.candidate_id


def test_a_changed_candidate_knows_its_parent_and_leaves_the_other_prompts() -> None:
    first = Candidate(prompts={"a": ONE, "b": TWO})
    changed = first.changed("a", "Solve {task}", made_by="critique")
    assert (changed.parent, changed.made_by) == (first.candidate_id, "critique")
    assert changed.prompts["a"].template == "Solve {task}"
    assert changed.prompts["a"].version == 2
    assert changed.prompts["b"] is TWO


def test_a_search_begins_with_every_prompt_or_those_named() -> None:
    resources = {"llm": LLM(base_url="http://x/v1", model="m"), "a": ONE, "b": TWO}
    assert list(first_candidate(resources, None).prompts) == ["a", "b"]
    assert list(first_candidate(resources, ["b"]).prompts) == ["b"]


@pytest.mark.parametrize(
    ("resources", "names", "message"),
    [
        ({}, None, "no prompt to improve"),
        ({"a": ONE}, ["c"], "'c', which is no prompt of resources \\(a\\)"),
        ({"a": PromptTemplate(template='{"json": 1}')}, None, "resources.a: not a template of f-string"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(
    resources: dict, names: list | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        first_candidate(resources, names)
