"""Write the answer of a chat completion: text, tool calls, exact ids and logprobs, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agl.inference.chat import ChatRequest
from agl.inference.tools import parse_tool_calls


class SampledAnswer(Protocol):
    """What sampling leaves behind of one choice."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The sampled ids, the end token included."""
        ...

    @property
    def logprobs(self) -> Sequence[float]:
        """Of each sampled id."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """``stop`` or ``length``."""
        ...


@dataclass(slots=True)
class TokenTexts:
    """The text and bytes of single tokens, for ``logprobs.content``; each token is decoded once."""

    tokenizer: Any
    _entries: dict[int, tuple[str, list[int] | None]] = field(
        default_factory=dict[int, tuple[str, list[int] | None]]
    )

    def content(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> list[dict[str, Any]]:
        """Return OpenAI's ``logprobs.content`` of an answer."""
        entries = self._entries
        for token_id in set(token_ids) - entries.keys():
            text = self.tokenizer.decode([token_id])
            # Half a character has bytes of its own, which its text does not tell.
            entries[token_id] = (text, None if "\ufffd" in text else list(text.encode()))
        content: list[dict[str, Any]] = []
        for token_id, logprob in zip(token_ids, logprobs, strict=True):
            text, data = entries[token_id]
            content.append({"token": text, "logprob": logprob, "bytes": data, "top_logprobs": []})
        return content


def cut_at_stop(text: str, stop: Sequence[str]) -> str | None:
    """Return the text before the first stop string, or None when there is none in it."""
    places = [place for place in map(text.find, stop) if place >= 0]
    return text[: min(places)] if places else None


def stop_check(stop: Sequence[str], tokenizer: Any) -> Callable[[Sequence[int]], bool] | None:
    """Return the check whether the newest token completes a stop string; None when there are none.

    Only the tail of the ids is decoded at each step: a token that adds text adds at least one byte, so the longest stop
    string lies within as many tokens as it has bytes; a hit is confirmed on the whole text.
    """
    if not stop:
        return None
    tail = max(len(string.encode()) for string in stop) + 4  # and a character that the tail cuts in half

    def stopped(token_ids: Sequence[int]) -> bool:
        if cut_at_stop(tokenizer.decode(token_ids[-tail:], skip_special_tokens=True), stop) is None:
            return False
        if len(token_ids) <= tail:
            return True
        return cut_at_stop(tokenizer.decode(token_ids, skip_special_tokens=True), stop) is not None

    return stopped


def chat_completion(
    request: ChatRequest,
    prompt_ids: Sequence[int],
    answers: Sequence[SampledAnswer],
    *,
    model: str,
    policy_version: int,
    texts: TokenTexts,
    created: int,
    new_id: Callable[[], str],
) -> dict[str, Any]:
    """Return OpenAI's ``chat.completion`` object with the exact ids.

    Args:
        request: what was asked for.
        prompt_ids: as the engine saw them.
        answers: one a choice.
        model: the name of the policy.
        policy_version: of the weights that sampled all answers.
        texts: with the policy's tokenizer.
        created: seconds since 1970.
        new_id: gives a new unique string of letters and digits.
    """
    return {
        "id": f"chatcmpl-{new_id()}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [_choice(request, index, answer, texts, new_id) for index, answer in enumerate(answers)],
        "usage": usage_of(prompt_ids, answers),
        "prompt_token_ids": list(prompt_ids),
        "policy_version": policy_version,
    }


def _choice(
    request: ChatRequest, index: int, answer: SampledAnswer, texts: TokenTexts, new_id: Callable[[], str]
) -> dict[str, Any]:
    message, finish_reason = message_of_choice(request, answer, texts.tokenizer, new_id)
    return {
        "index": index,
        "message": message,
        "finish_reason": finish_reason,
        "logprobs": logprobs_of(request, answer.token_ids, answer.logprobs, texts),
        "token_ids": list(answer.token_ids),
    }


def message_of_choice(
    request: ChatRequest, answer: SampledAnswer, tokenizer: Any, new_id: Callable[[], str]
) -> tuple[dict[str, Any], str | None]:
    """Return the message of an answer that has ended, and its finish reason."""
    text: str = tokenizer.decode(list(answer.token_ids), skip_special_tokens=True)
    if request.stop and (cut := cut_at_stop(text, request.stop)) is not None:
        text = cut
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    finish_reason = answer.finish_reason
    if request.tools is not None:
        content, calls = parse_tool_calls(text, new_id=lambda: f"call_{new_id()}")
        if calls:
            message["content"] = content or None
            message["tool_calls"] = calls if request.parallel_tool_calls else calls[:1]
            finish_reason = "tool_calls" if finish_reason == "stop" else finish_reason
    return message, finish_reason


def logprobs_of(
    request: ChatRequest, token_ids: Sequence[int], logprobs: Sequence[float], texts: TokenTexts
) -> dict[str, Any] | None:
    """Return OpenAI's ``logprobs`` of these ids, if the request asks for them."""
    return {"content": texts.content(token_ids, logprobs), "refusal": None} if request.logprobs else None


def usage_of(prompt_ids: Sequence[int], answers: Sequence[SampledAnswer]) -> dict[str, int]:
    """Return OpenAI's ``usage``."""
    num_sampled = sum(len(answer.token_ids) for answer in answers)
    return {
        "prompt_tokens": len(prompt_ids),
        "completion_tokens": num_sampled,
        "total_tokens": len(prompt_ids) + num_sampled,
    }
