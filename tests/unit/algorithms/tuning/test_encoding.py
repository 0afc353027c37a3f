"""Conversations in text become exact tokens with the loss on the assistant's words only, or are refused by cause."""

from __future__ import annotations

from typing import Any

import pytest
from chat_tokens import TEMPLATE, chat_tokens, masked_texts

from agl.adapters.conversations import Conversation
from agl.algorithms.tuning.encoding import answer_of, says, trajectories_of
from agl.inference.chat import encode_prompt, parse_request

CHAT = chat_tokens()
END = "<|im_end|>"
TWO_TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "Sure? é Ω"},
    {"role": "assistant", "content": "Yes, 2."},
]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"day": "Mo"}'}}
WITH_TOOL = [
    {"role": "user", "content": "Which room?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "Ada: 4"},
    {"role": "assistant", "content": "Ada."},
]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def conversation(
    messages: list[dict[str, Any]], *, answers: list[int] | None = None, tools: Any = None
) -> Conversation:
    assistants = [index for index, one in enumerate(messages) if one["role"] == "assistant"]
    return Conversation(
        name="f:1", messages=messages, tools=tools, answers=assistants if answers is None else answers
    )


def test_the_loss_is_on_the_assistants_words_and_their_end_and_turns_are_one_sequence() -> None:
    found = trajectories_of([conversation(TWO_TURNS)], CHAT)
    assert isinstance(found, list)
    (whole,) = found
    assert masked_texts(whole, CHAT) == [f"2{END}", f"Yes, 2.{END}"]
    assert CHAT.tokenizer.decode(whole.token_ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n"
        "<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nSure? é Ω<|im_end|>\n"
        "<|im_start|>assistant\nYes, 2.<|im_end|>"
    )


def test_prompts_are_what_the_engine_would_see() -> None:
    request = parse_request({"messages": TWO_TURNS}, model="")
    answer = answer_of(request, 4, CHAT)
    asked = parse_request({"messages": TWO_TURNS[:4]}, model="")
    assert not isinstance(answer, str)
    assert answer.prompt_ids == encode_prompt(asked, CHAT.tokenizer)


def test_an_answer_that_is_not_to_be_learned_is_part_of_the_prompt() -> None:
    found = trajectories_of([conversation(TWO_TURNS, answers=[4])], CHAT)
    assert isinstance(found, list)
    assert [masked_texts(one, CHAT) for one in found] == [[f"Yes, 2.{END}"]]


def test_tool_calls_are_learned_as_the_engine_reads_them() -> None:
    found = trajectories_of([conversation(WITH_TOOL, tools=TOOLS)], CHAT)
    assert isinstance(found, list)
    (whole,) = found
    call, answer = masked_texts(whole, CHAT)
    assert call == ('\n<tool_call>\n{"name": "look", "arguments": {"day": "Mo"}}\n</tool_call><|im_end|>')
    assert answer == f"Ada.{END}"
    assert "Tools: " in CHAT.tokenizer.decode(whole.token_ids)


CHANGES_HISTORY = TEMPLATE.replace(
    "{{ message.content }}", "{{ message.content if loop.last else '...' }}"
).replace("<|im_start|>{{ message.role }}", "{{ loop.length }}<|im_start|>{{ message.role }}")


@pytest.mark.parametrize(
    ("messages", "template", "cause"),
    [
        (TWO_TURNS[:2], TEMPLATE, "no_answer"),
        ([{"role": "user", "content": [{"type": "image"}]}, TWO_TURNS[2]], TEMPLATE, "unreadable_messages"),
        (TWO_TURNS, TEMPLATE + "{{ messages[7].role }}", "template_failed"),
        (TWO_TURNS, CHANGES_HISTORY, "template_rewrites_history"),
        (TWO_TURNS, TEMPLATE.replace("<|im_end|>", "</s>"), "no_end_token"),
        (
            TWO_TURNS,
            TEMPLATE.replace("{{ message.content }}", "{{ message.content | upper }}"),
            "decodes_differently",
        ),
        (TWO_TURNS, TEMPLATE.replace("{{ message.content }}", "{{ message.content | trim }}"), None),
    ],
)
def test_what_cannot_be_learned_is_refused_by_cause(
    messages: list[dict[str, Any]], template: str, cause: str | None
) -> None:
    found = trajectories_of([conversation(messages)], chat_tokens(template))
    assert found == cause or (cause is None and isinstance(found, list))


def test_a_template_that_loses_the_tool_calls_is_refused() -> None:
    lost = (
        TEMPLATE[: TEMPLATE.index("{%- for call in")] + TEMPLATE[TEMPLATE.index("<|im_end|>\n{% endfor %}") :]
    )
    assert trajectories_of([conversation(WITH_TOOL, tools=TOOLS)], chat_tokens(lost)) == "decodes_differently"


def test_calls_of_one_rollout_that_continue_each_other_are_one_sequence() -> None:
    calls = [
        conversation(TWO_TURNS[:3], answers=[2]),
        conversation(TWO_TURNS, answers=[4]),
        conversation([{"role": "user", "content": "Else?"}, {"role": "assistant", "content": "No."}]),
    ]
    found = trajectories_of(calls, CHAT)
    assert isinstance(found, list)
    assert [masked_texts(one, CHAT) for one in found] == [[f"2{END}", f"Yes, 2.{END}"], [f"No.{END}"]]


def test_ids_say_a_message_only_when_words_and_calls_agree() -> None:
    encode = CHAT.tokenizer.encode
    message = {"content": "Yes"}
    assert says(encode("Yes<|im_end|>"), message, CHAT)
    assert says(encode("Yes\n"), message, CHAT)
    marked = encode("Y<|im_start|>es<|im_end|>")
    assert not says(marked, message, CHAT)
    assert says(marked, message, CHAT, skip_special_tokens=True)  # as engines read
    assert not says(encode("No<|im_end|>"), message, CHAT)
    called = {"content": None, "tool_calls": [CALL]}
    text = '<tool_call>{"name": "look", "arguments": {"day": "%s"}}</tool_call>'
    assert says(encode(text % "Mo"), called, CHAT)
    assert not says(encode(text % "Tu"), called, CHAT)
    assert not says(encode(text % "Mo" + text % "Mo"), called, CHAT)
