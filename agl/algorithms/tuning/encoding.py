"""Conversations in text -> exact tokens by the policy's chat template, with the loss on the assistant's tokens only.

An answer's prompt is what the engine would see before it, and the answer is what it would have to sample: its text and
the token that ends it. Answers whose ids continue each other become one sequence, as sampled calls do. What the mask
covers is decoded again: unless it says what the assistant said, the conversation is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agl.adapters.conversations import Conversation
from agl.adapters.trajectories import trajectories_from_triplets
from agl.errors import InferenceError
from agl.inference.chat import ChatRequest, parse_request
from agl.inference.tools import parse_tool_calls
from agl.learners.base import ChatTokens
from agl.types import Trajectory, Triplet


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of an assistant as tokens: what stands before it, and itself with the token that ends it."""

    prompt_ids: list[int]
    response_ids: list[int]


def trajectories_of(conversations: Sequence[Conversation], chat: ChatTokens) -> list[Trajectory] | str:
    """Return the sequences of conversations that belong together, such as the calls of one rollout; or why not.

    Causes: ``no_answer``, ``unreadable_messages`` (the engine would refuse them), ``template_failed``,
    ``template_rewrites_history`` (the rendered answer does not follow its rendered prompt), ``no_end_token`` (the
    template ends answers with a token that does not end the policy's), ``decodes_differently``.
    """
    triplets: list[Triplet] = []
    for conversation in conversations:
        try:
            request = parse_request(
                {"messages": list(conversation.messages), "tools": list(conversation.tools or [])}, model=""
            )
        except InferenceError:
            return "unreadable_messages"
        for index in conversation.answers:
            answer = answer_of(request, index, chat)
            if isinstance(answer, str):
                return answer
            triplets.append(_triplet(conversation.name, len(triplets), answer))
    return trajectories_from_triplets(triplets) if triplets else "no_answer"


def answer_of(request: ChatRequest, index: int, chat: ChatTokens) -> Answer | str:
    """Return the answer at this place of the conversation as tokens, or why there are none."""
    from jinja2 import TemplateError

    tokenizer, before, message = chat.tokenizer, request.messages[:index], request.messages[index]
    try:
        prompt = _rendered(tokenizer, replace(request, messages=before), opens_answer=True)
        whole = _rendered(tokenizer, replace(request, messages=[*before, message]), opens_answer=False)
    except (TemplateError, TypeError, ValueError, KeyError, IndexError):
        return "template_failed"
    if not prompt or not whole.startswith(prompt):
        return "template_rewrites_history"
    prompt_ids, whole_ids = (
        cast("list[int]", tokenizer.encode(text, add_special_tokens=False)) for text in (prompt, whole)
    )
    if whole_ids[: len(prompt_ids)] == prompt_ids:
        response_ids = whole_ids[len(prompt_ids) :]
    else:  # a token reaches over the border, where the policy could not have sampled it
        response_ids = tokenizer.encode(whole[len(prompt) :], add_special_tokens=False)
    end = next((at for at, token_id in enumerate(response_ids) if token_id in chat.end_ids), None)
    if end is None:
        return "no_end_token"
    if not says(response_ids[:end], message, chat):
        return "decodes_differently"
    return Answer(prompt_ids=prompt_ids, response_ids=response_ids[: end + 1])


def says(
    response_ids: Sequence[int],
    message: Mapping[str, Any],
    chat: ChatTokens,
    *,
    skip_special_tokens: bool = False,
) -> bool:
    """Whether these ids say what the assistant's message says.

    The end token at their end says nothing, nor does space around the text; engines skip other special tokens, too.
    """
    spoken = list(response_ids)
    if spoken and spoken[-1] in chat.end_ids:
        spoken.pop()
    text = cast(
        "str",
        chat.tokenizer.decode(
            spoken, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        ),
    )
    wanted = _calls(message)
    content, calls = parse_tool_calls(text, new_id=str) if wanted else (text, [])
    return (
        content.strip() == (message.get("content") or "").strip() and _calls({"tool_calls": calls}) == wanted
    )


def _calls(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [(function["name"], _arguments(function.get("arguments"))) for function in functions]


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _rendered(tokenizer: Any, request: ChatRequest, *, opens_answer: bool) -> str:
    return cast(
        "str",
        tokenizer.apply_chat_template(
            list(request.messages), tools=request.tools, add_generation_prompt=opens_answer, tokenize=False
        ),
    )


def _triplet(name: str, number: int, answer: Answer) -> Triplet:
    return Triplet(
        rollout_id=name,
        attempt_id="",
        span_id="",
        sequence_id=number,
        agent=None,
        prompt_ids=answer.prompt_ids,
        response_ids=answer.response_ids,
        response_logprobs=[0.0] * len(answer.response_ids),
        temperature=1.0,
        policy_version=0,
        finish_reason="stop",
    )
