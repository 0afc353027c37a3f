"""The tokenizer and the chat template: what of them training relies on, and what it says where that does not hold."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agl.doctor.findings import Finding
from agl.doctor.policy import findings_from

TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
END = 1_114_112
"""One more than the last character."""


class Characters:
    """A tokenizer whose ids are characters, and one that ends a text: ``</s>``."""

    def __init__(self, template: str = TEMPLATE, *, end: str | None = "</s>", forgets: str = "") -> None:
        self.template, self.eos_token, self.forgets = template, end, forgets
        self.pad_token: str | None = None

    @property
    def eos_token_id(self) -> int | None:
        return None if self.eos_token is None else END

    def __len__(self) -> int:
        return END + 1

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        first, *others = text.split("</s>")
        return [*map(ord, first), *(token for part in others for token in (END, *map(ord, part)))]

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        text = "".join("</s>" if one == END else chr(one) for one in ids)
        return text.replace(self.forgets, "") if self.forgets else text

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        tools: Any = None,
    ) -> str:
        assert not tokenize
        made = ImmutableSandboxedEnvironment().from_string(self.template)
        return made.render(messages=messages, add_generation_prompt=add_generation_prompt)


def by_subject(tokenizer: Characters) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings_from(tokenizer)}


def test_a_tokenizer_that_is_well_says_why() -> None:
    found = by_subject(Characters())
    assert [finding.status for finding in found.values()] == ["ok"] * 4
    assert (
        found["tokenizer"].detail == "Characters, 1,114,113 tokens; text -> ids -> text gives the same text"
    )
    assert found["end token"].detail == "</s>; no padding token, none is needed"
    assert found["chat template"].detail == "it opens the answer with '<s>assistant\\n'"
    assert found["turns"].detail.startswith("each prompt begins with the turn before")


def test_ids_that_do_not_give_the_text_back_are_a_warning() -> None:
    assert by_subject(Characters(forgets="?"))["tokenizer"].status == "warn"


def test_no_end_token_fails() -> None:
    assert by_subject(Characters(end=None))["end token"].status == "fail"


def test_a_template_that_does_not_open_the_answer_is_a_warning() -> None:
    silent = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
    assert by_subject(Characters(silent))["chat template"].status == "warn"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (("{{ m.content }}", "{{ m.content | upper if not loop.last else m.content }}"), "its question"),
        (("{{ m.content }}", "{{ m.content.split('=')[0] }}"), "its answer"),
        (("</s>", ""), "its answer"),
    ],
)
def test_a_template_that_rewrites_earlier_turns_is_a_warning(change: tuple[str, str], where: str) -> None:
    found = by_subject(Characters(TEMPLATE.replace(*change)))["turns"]
    assert found.status == "warn"
    assert found.detail == f"a later prompt renders an earlier turn otherwise (in {where})"


def test_a_template_that_refuses_the_messages_fails() -> None:
    class Refusing(Characters):
        def apply_chat_template(self, *_: Any, **__: Any) -> str:
            raise TemplateError("only system messages")

    found = by_subject(Refusing())
    assert found["chat template"].status == "fail"
    assert "only system messages" in found["chat template"].detail
