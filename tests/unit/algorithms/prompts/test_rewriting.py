"""What a model writes becomes a prompt only where it can be used; what was mended is told."""

from __future__ import annotations

import pytest

from agl.algorithms.prompts.rewriting import RefusedRewriteError, placeholder_text, rewrite_from_answer
from agl.types import PromptTemplate

PROMPT = PromptTemplate(template="Answer {task}")
JINJA = PromptTemplate(template="Answer {{ task }}", engine="jinja2")
POML = PromptTemplate(template="<p>Answer {{ task }}</p>", engine="poml")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<prompt>Solve {task}</prompt>", "Solve {task}"),
        (
            "First <prompt>draft {task}</prompt>, better:\n<prompt>\nSolve {task}\n</prompt> done",
            "Solve {task}",
        ),
        ("Here it is:\n```text\nSolve {task}\n```\nGood luck!", "Solve {task}"),
        ("Solve {task} with care", "Solve {task} with care"),
    ],
)
def test_the_prompt_is_found_in_the_answer(answer: str, text: str) -> None:
    rewrite = rewrite_from_answer(answer, PROMPT)
    assert (rewrite.text, rewrite.repairs) == (text, ())


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("", "empty"),
        ("<prompt>  </prompt>", "empty"),
        ("I cannot help with that.", "unmarked"),
        ("asdf qwer 7 {other}", "unmarked"),
        ("<prompt>Solve {task} and then", "unfinished"),
        ("<prompt>Answer {task}</prompt>", "unchanged"),
        (f"<prompt>{'x' * 8001} {{task}}</prompt>", "too_long"),
    ],
)
def test_what_is_no_prompt_is_refused_by_cause(answer: str, cause: str) -> None:
    with pytest.raises(RefusedRewriteError) as refused:
        rewrite_from_answer(answer, PROMPT)
    assert refused.value.cause == cause


@pytest.mark.parametrize(
    ("prompt", "written", "text", "repairs"),
    [
        (PROMPT, "Solve it", "Solve it\n\n{task}", ("placeholder",)),
        (PROMPT, "Solve {{task}}", "Solve {task}", ("placeholder",)),
        (PROMPT, "Solve {{ task }}", "Solve {task}", ("placeholder",)),
        (PROMPT, "Solve { task }", "Solve {task}", ("placeholder",)),
        (PROMPT, 'Say {"a": {"b": 1}} for {task}', 'Say {{"a": {{"b": 1}}}} for {task}', ("braces",)),
        (PROMPT, 'Say {{"a": 1}} or {x} for {task}', 'Say {{"a": 1}} or {{x}} for {task}', ("braces",)),
        (PROMPT, "Solve {question}", "Solve {{question}}\n\n{task}", ("braces", "placeholder")),
        (JINJA, "Solve {task}", "Solve {{ task }}", ("placeholder",)),
        (JINJA, "Solve it", "Solve it\n\n{{ task }}", ("placeholder",)),
        (
            JINJA,
            "{% if task %}{{ task | upper }}{% endif %}",
            "{% if task %}{{ task | upper }}{% endif %}",
            (),
        ),
        (POML, "<p>Solve it</p>", "<p>Solve it</p>\n\n<p>{{ task }}</p>", ("placeholder",)),
    ],
)
def test_braces_and_placeholders_are_mended_and_told(
    prompt: PromptTemplate, written: str, text: str, repairs: tuple[str, ...]
) -> None:
    rewrite = rewrite_from_answer(f"<prompt>{written}</prompt>", prompt)
    assert (rewrite.text, rewrite.repairs) == (text, repairs)
    assert prompt.changed_to(rewrite.text).placeholders == {"task"}


def test_a_mended_prompt_says_what_the_model_meant() -> None:
    rewrite = rewrite_from_answer('<prompt>Say {"a": {"b": 1}} for {task}</prompt>', PROMPT)
    assert PROMPT.changed_to(rewrite.text).format(task="7") == 'Say {"a": {"b": 1}} for 7'


@pytest.mark.parametrize(
    ("prompt", "written", "cause"),
    [
        (PROMPT, "Solve it", "lost_placeholder"),
        (PROMPT, "Solve {task} for {who}", "unknown_placeholder"),
        (PROMPT, 'Say {"a": 1} for {task}', "not_a_template"),
        (JINJA, "{% if %} {{ task }}", "not_a_template"),
    ],
)
def test_without_repairs_such_rewrites_are_refused(prompt: PromptTemplate, written: str, cause: str) -> None:
    with pytest.raises(RefusedRewriteError) as refused:
        rewrite_from_answer(f"<prompt>{written}</prompt>", prompt, repair=False)
    assert refused.value.cause == cause


def test_a_new_name_in_jinja_is_refused_even_with_repairs() -> None:
    with pytest.raises(RefusedRewriteError) as refused:
        rewrite_from_answer("<prompt>{{ task }} {{ answer }}</prompt>", JINJA)
    assert refused.value.cause == "unknown_placeholder"


def test_a_prompt_without_placeholders_needs_marks() -> None:
    plain = PromptTemplate(template="Be brief.")
    with pytest.raises(RefusedRewriteError) as refused:
        rewrite_from_answer("Sorry, no.", plain)
    assert refused.value.cause == "unmarked"
    assert rewrite_from_answer("<prompt>Be exact.</prompt>", plain).text == "Be exact."


def test_a_placeholder_is_written_as_its_engine_does() -> None:
    assert [placeholder_text(one, "x") for one in (PROMPT, JINJA, POML)] == ["{x}", "{{ x }}", "{{ x }}"]
