"""Questions out of POML files: the user's own in place of the built-in, each rendered once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.markup import BUILT_IN, Questions, markup_file, values_of
from agl.errors import ConfigError
from agl.types import PromptTemplate


def test_a_users_file_stands_in_for_the_built_in_one(tmp_path: Path) -> None:
    own = tmp_path / "mine.poml"
    own.write_text("<poml/>")
    assert markup_file(None, "critique.poml", setting="critique_file") == BUILT_IN / "critique.poml"
    assert markup_file(str(own), "critique.poml", setting="critique_file") == own
    with pytest.raises(ConfigError, match=r"critique_file is /no/such.poml"):
        markup_file("/no/such.poml", "critique.poml", setting="critique_file")


def test_the_built_in_files_are_there() -> None:
    for name in ("critique.poml", "rewrite.poml"):
        assert markup_file(None, name, setting="x").is_file()


async def test_equal_questions_are_rendered_once_and_others_side_by_side() -> None:
    rendered: list[Any] = []

    def render(path: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        rendered.append((path.name, values["n"]))
        return [{"role": "user", "content": str(values["n"])}]

    questions = Questions(render=render)
    asked = [questions.messages(Path("a.poml"), {"n": n % 2}) for n in range(6)]
    answers = await asyncio.gather(*asked)
    assert [messages[0]["content"] for messages in answers] == ["0", "1", "0", "1", "0", "1"]
    assert sorted(rendered) == [("a.poml", 0), ("a.poml", 1)]


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.poml cannot be made into a question"):
        await Questions().messages(tmp_path / "gone.poml", {})


def test_a_question_knows_the_prompt_as_it_is_written() -> None:
    candidate = Candidate(prompts={"p": PromptTemplate(template="{{ b }} {{ a }}", engine="jinja2")})
    assert values_of(candidate, "p") == {
        "prompt": "{{ b }} {{ a }}",
        "name": "p",
        "placeholders": ["{{ a }}", "{{ b }}"],
        "opening": "<prompt>",
        "closing": "</prompt>",
    }
