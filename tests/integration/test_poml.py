"""POML, rendered by its own Node program."""

import pytest

from agl.errors import InvalidRequestError
from agl.types import PromptTemplate


def test_a_poml_prompt_is_rendered_with_its_values_as_text() -> None:
    prompt = PromptTemplate(template="<p>Book: {{task}}</p>", engine="poml")
    assert prompt.format(task="room <b> & {x}").strip() == "Book: room <b> & {x}"


def test_poml_that_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="cannot be rendered"):
        PromptTemplate(template="{{ task.no.such }}", engine="poml").format(task="x")
