"""The record of a call: a model call and its answer -> the span ``chat {model}``. Pure.

Training reads nothing but this span, so ids and logprobs are kept exactly as the upstream gave them, or not at all
and with the cause in ``agl.missing_ids_cause``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple, cast

import orjson

from agl.proxy.canonical import choices_of, token_count
from agl.proxy.routes import Address
from agl.proxy.upstream import UPSTREAM
from agl.types import Span, SpanStatus
from agl.types import attributes as key
from agl.types.packing import packed_floats, packed_ids

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_DETAILS = "prompt_tokens_details"
_MAX_DESCRIPTION = 2000  # characters of an error's text on the span
_OK = SpanStatus(code="ok")


class Call(NamedTuple):
    """A call as it was put to the upstream.

    Args:
        address: whose call it is.
        request: what the upstream was asked, forced sampling included.
        span_id: 16 hex digits.
        traceparent: W3C trace context of the agent's own span, when its HTTP client sent it.
        started_ns: Unix nanoseconds at dispatch.
        policy_version: at dispatch, for answers that do not say which weights sampled them.
        dialect: the client's wire format.
        stream: whether the client asked for a stream.
    """

    address: Address
    request: Mapping[str, Any]
    span_id: str
    traceparent: str | None
    started_ns: int
    policy_version: int | None
    dialect: str = "openai.chat"
    stream: bool = False


class Ended(NamedTuple):
    """When a call ended.

    Args:
        ended_ns: Unix nanoseconds.
        first_chunk_ns: when a stream's first chunk came, None for what has no chunks.
        policy_version: the upstream's, None where it has none.
    """

    ended_ns: int
    first_chunk_ns: int | None = None
    policy_version: int | None = None


def answered_span(call: Call, answer: Mapping[str, Any], ended: Ended) -> Span:
    """Return the record of an answered call."""
    attributes = _asked(call, ended)
    attributes.update(_answered(call, answer, ended))
    return _span(call, attributes, _OK, ended)


def failed_span(
    call: Call,
    ended: Ended,
    *,
    error_type: str,
    description: str,
    received: Mapping[str, Any] | None = None,
) -> Span:
    """Return the record of a call that failed or was cancelled, with what was ``received`` of its answer."""
    attributes = _asked(call, ended)
    if received is not None:
        attributes |= _answered(call, received, ended)
    attributes[key.ERROR_TYPE] = error_type
    return _span(
        call, attributes, SpanStatus(code="error", description=description[:_MAX_DESCRIPTION]), ended
    )


def embeddings_span(call: Call, answer: Mapping[str, Any], ended: Ended) -> Span:
    """Return the record of a request for embeddings: what it cost, without its texts and vectors."""
    attributes: dict[str, Any] = {
        key.OPERATION: "embeddings",
        key.PROVIDER: "openai",
        key.REQUEST_MODEL: call.request["model"],
        key.LATENCY_SECONDS: (ended.ended_ns - call.started_ns) / 1e9,
        key.DIALECT: call.dialect,
    }
    count = token_count(answer.get("usage"), "prompt_tokens")
    if count is not None:
        attributes[key.INPUT_TOKENS] = count
    if call.address.agent is not None:
        attributes[key.AGENT] = call.address.agent
    span = _span(call, attributes, _OK, ended)
    return span.changed(name=f"{key.EMBEDDINGS_SPAN_PREFIX}{call.request['model']}")


def refused_embeddings_span(call: Call, ended: Ended, *, error_type: str, description: str) -> Span:
    """Return the record of a request for embeddings that the proxy refused."""
    span = embeddings_span(call, {}, ended)
    status = SpanStatus(code="error", description=description[:_MAX_DESCRIPTION])
    return span.changed(status=status, attributes={**span.attributes, key.ERROR_TYPE: error_type})


def _answered(call: Call, answer: Mapping[str, Any], ended: Ended) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    choices = choices_of(answer)
    attributes[key.OUTPUT_MESSAGES] = _json_text([_recorded(choice["message"]) for choice in choices])
    attributes[key.FINISH_REASONS] = [str(choice.get("finish_reason") or "unknown") for choice in choices]
    for name, field in ((key.RESPONSE_ID, "id"), (key.RESPONSE_MODEL, "model"), (key.UPSTREAM, UPSTREAM)):
        if isinstance(answer.get(field), str):
            attributes[name] = answer[field]
    attributes.update(_counts(answer.get("usage")))
    if ended.first_chunk_ns is not None:
        attributes[key.TIME_TO_FIRST_CHUNK] = (ended.first_chunk_ns - call.started_ns) / 1e9
    attributes.update(_policy_versions(call, answer, ended))
    attributes.update(_exact_tokens(answer, choices))
    return attributes


def _counts(usage: object) -> dict[str, Any]:
    told: Mapping[str, object] = cast("Mapping[str, object]", usage) if isinstance(usage, Mapping) else {}
    counts = {
        key.INPUT_TOKENS: token_count(told, "prompt_tokens"),
        key.OUTPUT_TOKENS: token_count(told, "completion_tokens"),
        key.CACHED_TOKENS: token_count(told.get(_DETAILS), "cached_tokens"),
    }
    return {name: count for name, count in counts.items() if count is not None}


def _policy_versions(call: Call, answer: Mapping[str, Any], ended: Ended) -> dict[str, Any]:
    """The weights that sampled the answer: what it says itself, else the versions at dispatch and at the end."""
    first = answer.get("policy_version")
    last = answer.get("policy_version_end", first)
    if not isinstance(first, int):
        first = call.policy_version
        last = first if ended.policy_version is None else ended.policy_version
    versions = {} if first is None else {key.POLICY_VERSION: first}
    return versions if last == first or first is None else versions | {key.POLICY_VERSION_END: last}


def _recorded(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without fields that say nothing, which servers give to plain and streamed answers differently."""
    said = {
        name: value for name, value in message.items() if value not in (None, [], {}) or name == "content"
    }
    if said.get("tool_calls") and said.get("content") == "":
        said["content"] = None
    return said


def _span(call: Call, attributes: dict[str, Any], status: SpanStatus, ended: Ended) -> Span:
    address = call.address
    trace = _TRACEPARENT.fullmatch(call.traceparent) if call.traceparent else None
    trace_id, parent_id = trace.groups() if trace else (_attempt_trace_id(address), None)
    fields = {
        "span_id": call.span_id,
        "trace_id": trace_id,
        "parent_id": parent_id,
        "name": key.CHAT_SPAN_PREFIX + call.request["model"],
        "kind": "client",
        "status": status,
        "attributes": attributes,
        "events": (),
        "links": (),
        "resource": {"service.name": "agl.proxy"},
        "start_time_ns": call.started_ns,
        "end_time_ns": ended.ended_ns,
        "rollout_id": address.rollout_id,
        "attempt_id": address.attempt_id,
        "sequence_id": None,
    }
    return Span.trusted(fields)  # a check costs more than all else that is done for the span


def _attempt_trace_id(address: Address) -> str:
    """One trace for the calls of an attempt whose agent brings no trace of its own."""
    return blake2b(f"{address.rollout_id}\0{address.attempt_id}".encode(), digest_size=16).hexdigest()


def _asked(call: Call, ended: Ended) -> dict[str, Any]:
    request = call.request
    prompt = request.get("prompt")
    messages = request["messages"] if prompt is None else [{"role": "user", "content": prompt}]
    attributes: dict[str, Any] = {
        key.OPERATION: "chat" if prompt is None else "text_completion",
        key.PROVIDER: "openai",
        key.REQUEST_MODEL: request["model"],
        key.TEMPERATURE: request["temperature"],
        key.INPUT_MESSAGES: _json_text(messages),
        key.LATENCY_SECONDS: (ended.ended_ns - call.started_ns) / 1e9,
        key.DIALECT: call.dialect,
    }
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    optional = {
        key.TOP_P: request.get("top_p"),
        key.MAX_TOKENS: limit,
        key.SEED: request.get("seed"),
        key.CHOICE_COUNT: request.get("n"),
        key.TOOL_DEFINITIONS: _json_text(request["tools"]) if request.get("tools") else None,
        key.AGENT: call.address.agent,
        key.STREAM: call.stream or None,
    }
    attributes.update({name: value for name, value in optional.items() if value is not None})
    return attributes


def _exact_tokens(answer: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ids and logprobs, packed, one triple a choice (the prompt's ids once), or the cause of their absence."""
    packed: dict[str, Any] = {}
    prompt = _packed_ids(answer.get("prompt_token_ids"))
    if prompt is not None:
        packed[key.PROMPT_TOKEN_IDS] = prompt
    for index, choice in enumerate(choices):
        ids, logprobs = choice.get("token_ids"), _logprobs(choice)
        response = _packed_ids(ids)
        cause = _missing_cause(None if prompt is None or response is None else ids, logprobs)
        if cause is not None:
            packed[key.of_choice(key.MISSING_IDS_CAUSE, index)] = cause
            continue
        packed[key.of_choice(key.RESPONSE_TOKEN_IDS, index)] = response
        packed[key.of_choice(key.RESPONSE_LOGPROBS, index)] = packed_floats(logprobs or ())
    return packed


def _missing_cause(ids: Sequence[int] | None, logprobs: Sequence[float] | None) -> str | None:
    if ids is None:
        return "upstream_without_ids"
    if logprobs is None:
        return "upstream_without_logprobs"
    if len(ids) != len(logprobs):
        return "length_mismatch"
    # Their sum is finite only if all are, and finite ones may have one that is not.
    are_finite = math.isfinite(sum(logprobs)) or all(map(math.isfinite, logprobs))
    return None if are_finite else "logprob_not_finite"


def _packed_ids(ids: object) -> str | None:
    """The ids packed, or None for anything that is not a list of int32."""
    if not isinstance(ids, list | tuple):
        return None
    try:
        return packed_ids(cast("Sequence[int]", ids))
    except (TypeError, OverflowError):
        return None


def _logprobs(choice: Mapping[str, Any]) -> list[float] | None:
    """The sampled tokens' logprobs, or None when one is missing."""
    given = choice.get("logprobs")
    content = cast("dict[str, object]", given).get("content") if isinstance(given, dict) else None
    if not isinstance(content, list):
        return None
    try:
        return list(map(float, map(itemgetter("logprob"), cast("list[Any]", content))))
    except (TypeError, KeyError, ValueError):
        return None


def _json_text(value: object) -> str:
    return orjson.dumps(value).decode()
