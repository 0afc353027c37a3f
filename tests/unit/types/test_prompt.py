"""Prompt templates: what they need, what they refuse, where they come from."""

import pytest

from agl.errors import InvalidRequestError
from agl.types import PromptTemplate


def test_an_f_string_prompt_names_its_placeholders_and_fills_them() -> None:
    prompt = PromptTemplate(template="Answer {task} as {{json}} for {who}: {task}")
    assert prompt.placeholders == {"task", "who"}
    assert prompt.format(task="2+2", who="me", unused=1) == "Answer 2+2 as {json} for me: 2+2"


def test_a_missing_value_is_named() -> None:
    with pytest.raises(KeyError, match="who"):
        PromptTemplate(template="{who} {task}").format(task=1)


@pytest.mark.parametrize(
    "text", ["{task", "{}", "{0}", "{task.__class__}", "{task[0]}", "{task!r}", "{task:>9}"]
)
def test_an_f_string_prompt_knows_plain_names_only(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a template of f-string"):
        _ = PromptTemplate(template=text).placeholders
    with pytest.raises(InvalidRequestError):
        PromptTemplate(template=text).format(task="secret")


def test_a_jinja2_prompt_names_its_placeholders_and_fills_them() -> None:
    prompt = PromptTemplate(
        template="{% for row in rows %}{{ row }};{% endfor %} {{ task }}\n", engine="jinja2"
    )
    assert prompt.placeholders == {"rows", "task"}
    assert prompt.format(rows=[1, 2], task="sum") == "1;2; sum\n"
    with pytest.raises(KeyError, match="rows"):
        prompt.format(task="sum")


def test_a_jinja2_prompt_runs_in_a_sandbox() -> None:
    prompt = PromptTemplate(template="{{ task.__class__.__mro__ }}", engine="jinja2")
    with pytest.raises((InvalidRequestError, KeyError)):
        prompt.format(task="x")


def test_a_broken_jinja2_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="jinja2"):
        _ = PromptTemplate(template="{% if %}", engine="jinja2").placeholders


def test_a_poml_prompt_names_its_placeholders() -> None:
    prompt = PromptTemplate(
        template='<p>{{task}}</p><list><item for="x in rows">{{ x.name }}</item></list>', engine="poml"
    )
    assert prompt.placeholders == {"task", "rows"}


def test_equal_prompts_have_equal_ids_whatever_they_come_from() -> None:
    first = PromptTemplate(template="a {task}")
    again = first.changed_to("b {task}").changed_to("a {task}")
    assert again.template_id == first.template_id
    assert (again.version, again.parent) == (3, first.changed_to("b {task}").template_id)
    assert first.template_id != PromptTemplate(template="a {task}", engine="jinja2").template_id


def test_a_diff_tells_what_changed_from_which_version_to_which() -> None:
    first = PromptTemplate(template="Be brief.\nAnswer {task}")
    second = first.changed_to("Be exact.\nAnswer {task}")
    assert first.diff(second).splitlines() == [
        f"--- {first.template_id} (version 1)",
        f"+++ {second.template_id} (version 2)",
        "@@ -1,2 +1,2 @@",
        "-Be brief.",
        "+Be exact.",
        " Answer {task}",
    ]
    assert first.diff(first) == ""
