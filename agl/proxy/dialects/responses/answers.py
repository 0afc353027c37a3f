"""A canonical answer -> a Response object and its items. Pure.

The ids follow from the call, so that a repeated answer is the same to the byte: ``resp_`` with the upstream's id and a
mark of the request, because some servers give the same id twice and agents take equal ids for the same thing.

Source: https://platform.openai.com/docs/api-reference/responses/object
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import orjson

from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.responses.nodes import number_of, object_of, objects_of
from agl.proxy.dialects.responses.requests import asks_for_logprobs, items_of

ItemStatus = Literal["in_progress", "completed", "incomplete"]

BESIDE = "openai.responses"
"""The key of a canonical message under which a provider's own ``output`` stands, where a chat cannot say all of it."""
_NATIVE_PREFIX = "resp_"
_CHAT_PREFIX = "chatcmpl-"
_UNFINISHED: Mapping[object, str | None] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "abort": None,
    "error": None,
}
"""Finish reasons of answers that are not whole -> the reason that Responses has for it."""
_ECHOED: Mapping[str, object] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a Response repeats of its request, with the API's defaults."""


def response_object(request: ClientRequest, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Response of a whole answer."""
    frame = response_frame(
        request, canonical_id=answer.get("id"), created=answer.get("created"), model=answer.get("model")
    )
    return finished_response(frame, output_items(request, answer), answer)


def response_id(request: ClientRequest, canonical_id: object) -> str:
    """Return the id of the Response to a request; a Responses provider's own id stays."""
    given = canonical_id if isinstance(canonical_id, str) else ""
    if given.startswith(_NATIVE_PREFIX):
        return given
    items = items_of(request.native)
    asked = [given, request.native.get("previous_response_id"), len(items), items[-1:]]
    mark = blake2b(orjson.dumps(asked), digest_size=8).hexdigest()
    return "_".join(part for part in ("resp", given.removeprefix(_CHAT_PREFIX), mark) if part)


def response_frame(
    request: ClientRequest, *, canonical_id: object, created: object, model: object
) -> dict[str, Any]:
    """Return a Response that has begun: no output yet."""
    native = request.native
    frame: dict[str, Any] = {
        "id": response_id(request, canonical_id),
        "object": "response",
        "created_at": created if isinstance(created, int | float) else 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model if isinstance(model, str) else request.chat["model"],
        "output": [],
        "usage": None,
    }
    for name, default in _ECHOED.items():
        frame[name] = default if native.get(name) is None else native[name]
    frame["text"] = {"format": {"type": "text"}, **object_of(frame["text"])}
    return frame


def finished_response(
    frame: Mapping[str, Any], output: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the frame with its output and the answer's end."""
    reason = finish_reason(answer)
    whole = reason not in _UNFINISHED
    usage = usage_of(answer.get("usage"))
    tier = answer.get("service_tier")
    return {
        **frame,
        "status": "completed" if whole else "incomplete",
        "incomplete_details": None if whole else {"reason": _UNFINISHED[reason]},
        "output": output,
        "usage": usage,
        "service_tier": tier if isinstance(tier, str) else frame["service_tier"],
    }


def is_whole(answer: Mapping[str, Any]) -> bool:
    """Whether the model ended the answer itself."""
    return finish_reason(answer) not in _UNFINISHED


def finish_reason(answer: Mapping[str, Any]) -> object:
    """Return why the first choice ended."""
    return first_choice(answer).get("finish_reason")


def first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the choice of index 0; a Response has no others."""
    for choice in objects_of(answer.get("choices")):
        if not choice.get("index"):
            return choice
    return {}


def output_items(request: ClientRequest, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of an answer: its reasoning, its message, its function calls."""
    name = response_id(request, answer.get("id"))
    return items_of_response(name, answer, with_logprobs=asks_for_logprobs(request.native))


def items_of_response(
    name: str, answer: Mapping[str, Any], *, with_logprobs: bool = False
) -> list[dict[str, Any]]:
    """Return the items of the Response of this id."""
    choice = first_choice(answer)
    message = object_of(choice.get("message"))
    own = provider_items(message)
    if own:
        return [dict(item) for item in own]
    mark = name.removeprefix(_NATIVE_PREFIX)
    reasoning, calls = reasoning_of(message), function_calls(message)
    items: list[dict[str, Any]] = []
    if reasoning:
        items.append(reasoning_item(item_id("rs", mark, 0), [reasoning_part(reasoning)], status="completed"))
    parts: list[dict[str, Any]] = []
    if message.get("content") or not (reasoning or calls or message.get("refusal")):
        logprobs = logprob_entries(choice) if with_logprobs else []
        parts.append(text_part(message.get("content") or "", logprobs, message.get("annotations")))
    if message.get("refusal"):
        parts.append(refusal_part(message["refusal"]))
    if parts:
        items.append(message_item(item_id("msg", mark, len(items)), parts, status="completed"))
    for index, call in enumerate(calls):
        name, arguments = call["function"].get("name") or "", call["function"].get("arguments") or ""
        call_id = call.get("id") or fallback_call_id(mark, index)
        item = call_item(item_id("fc", mark, len(items)), call_id, name, arguments, status="completed")
        items.append(item)
    if not is_whole(answer):
        items[-1]["status"] = "incomplete"
    return items


def provider_items(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the items as a Responses provider gave them, where they stand beside the message."""
    return objects_of(object_of(message.get(BESIDE)).get("output"))


def item_id(prefix: str, mark: str, output_index: int) -> str:
    """Return the id of an item of the Response ``resp_{mark}``."""
    return f"{prefix}_{mark}_{output_index}"


def fallback_call_id(mark: str, index: int) -> str:
    """Return the id of a tool call whose model server gave none."""
    return f"call_{mark}_{index}"


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning of a message or a delta, under either of vLLM's names."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str):
            return message[name]
    return ""


def function_calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the function calls of a message or a delta."""
    return [
        call for call in objects_of(message.get("tool_calls")) if isinstance(call.get("function"), Mapping)
    ]


def message_item(item_id: str, parts: Sequence[Mapping[str, Any]], *, status: ItemStatus) -> dict[str, Any]:
    """Return the item of what the model said."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": parts}


def call_item(item_id: str, call_id: str, name: str, arguments: str, *, status: ItemStatus) -> dict[str, Any]:
    """Return the item of a function call."""
    call = {"call_id": call_id, "name": name, "arguments": arguments}
    return {"id": item_id, "type": "function_call", "status": status, **call}


def reasoning_item(item_id: str, parts: Sequence[Mapping[str, Any]], *, status: ItemStatus) -> dict[str, Any]:
    """Return the item of the model's reasoning, spelled out."""
    return {"id": item_id, "type": "reasoning", "status": status, "summary": [], "content": parts}


def text_part(
    text: str, logprobs: Sequence[Mapping[str, Any]] = (), annotations: object = None
) -> dict[str, Any]:
    """Return the part of a message that is text."""
    return {
        "type": "output_text",
        "text": text,
        "annotations": _annotations(annotations),
        "logprobs": logprobs,
    }


def refusal_part(refusal: str) -> dict[str, Any]:
    """Return the part of a message by which the model declines."""
    return {"type": "refusal", "refusal": refusal}


def reasoning_part(text: str) -> dict[str, Any]:
    """Return the part of a reasoning item."""
    return {"type": "reasoning_text", "text": text}


def logprob_entries(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the logprobs of a choice or of a chunk's; ``bytes`` is empty where a token is no whole character."""
    return [
        {**_token(entry), "top_logprobs": [_token(other) for other in objects_of(entry.get("top_logprobs"))]}
        for entry in objects_of(object_of(choice.get("logprobs")).get("content"))
    ]


def usage_of(given: object) -> dict[str, Any] | None:
    """Return the usage under the names of the Responses API; None stays unknown."""
    usage = object_of(given)
    if not usage:
        return None
    prompt, sampled = number_of(usage.get("prompt_tokens")), number_of(usage.get("completion_tokens"))
    prompt_details = object_of(usage.get("prompt_tokens_details"))
    sampled_details = object_of(usage.get("completion_tokens_details"))
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": number_of(prompt_details.get("cached_tokens")),
            "cache_write_tokens": number_of(prompt_details.get("cache_write_tokens")),
        },
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": number_of(sampled_details.get("reasoning_tokens"))},
        "total_tokens": number_of(usage.get("total_tokens")) or prompt + sampled,
    }


def _token(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": entry["token"], "bytes": entry.get("bytes") or [], "logprob": entry["logprob"]}


def _annotations(given: object) -> list[dict[str, Any]]:
    """Chat completions nest a citation under its type; Responses does not."""
    flat: list[dict[str, Any]] = []
    for annotation in objects_of(given):
        nested = object_of(annotation.get(str(annotation.get("type"))))
        flat.append({"type": annotation.get("type"), **(nested or annotation)})
    return flat
