"""How a policy writes conversations, without transformers: a token a character, ChatML's marks, Hermes' tool calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment

from agl.learners.base import ChatTokens

MARKS = ["<|im_start|>", "<|im_end|>"]
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class CharacterTokenizer:
    """The id of a character is its code behind the marks; ``template`` is a chat template."""

    def __init__(self, template: str = TEMPLATE) -> None:
        self._template = Environment(autoescape=False).from_string(template)

    def __len__(self) -> int:
        return 0x110000 + len(MARKS)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        parts = re.split("(" + "|".join(map(re.escape, MARKS)) + ")", text)
        return [
            token
            for part in parts
            for token in ([MARKS.index(part)] if part in MARKS else [ord(sign) + len(MARKS) for sign in part])
        ]

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        marks = ["", ""] if options.get("skip_special_tokens") else MARKS
        return "".join(marks[token] if token < len(MARKS) else chr(token - len(MARKS)) for token in ids)

    def apply_chat_template(
        self, messages: Any, *, tools: Any, add_generation_prompt: bool, **options: Any
    ) -> str:
        return self._template.render(
            messages=messages, tools=tools, add_generation_prompt=add_generation_prompt
        )


def chat_tokens(template: str = TEMPLATE) -> ChatTokens:
    """ChatML by characters, or another template."""
    return ChatTokens(tokenizer=CharacterTokenizer(template), end_ids=frozenset({1}))


def masked_texts(trajectory: Any, chat: ChatTokens) -> list[str]:
    """What each stretch under the mask says."""
    texts: list[str] = []
    before = 0
    for token, bit in zip(trajectory.token_ids, trajectory.loss_mask, strict=True):
        if bit and not before:
            texts.append("")
        if bit:
            texts[-1] += chat.tokenizer.decode([token])
        before = bit
    return texts
