"""Spans of one attempt -> triplets: the recorded calls as exact ids, logprobs and rewards.

Nothing is re-tokenized: a call without exact ids yields no triplet and is counted by its cause.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from agl.types import Span, Triplet
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsOfAttempt:
    """What the spans of one attempt hold for training.

    Args:
        num_calls: recorded calls of the agents asked for, failed ones left out.
        triplets: one a choice with exact ids, in the order of the calls.
        dropped: choices left out, by cause.
    """

    num_calls: int
    triplets: list[Triplet]
    dropped: Counter[str] = field(default_factory=Counter[str])


def calls_of_attempt(spans: Sequence[Span], *, agents: Sequence[str] | None = None) -> CallsOfAttempt:
    """Read the calls out of one attempt's spans.

    Args:
        spans: of one attempt, in any order.
        agents: names or regular expressions (matched whole) of the agents whose calls are trained; None is everyone.
    """
    ordered = _in_order(spans)
    calls = calls_of_agents(ordered, agents=agents)
    rewards = _rewards_of_calls(calls, ordered)
    triplets: list[Triplet] = []
    dropped: Counter[str] = Counter()
    for span in calls:
        found = [_triplet(span, index) for index in range(int(span.attributes.get(key.CHOICE_COUNT, 1)))]
        dropped.update(cause for cause in found if not isinstance(cause, Triplet))
        choices = [choice for choice in found if isinstance(choice, Triplet)]
        if choices:  # the call's reward comes behind all of its choices, once
            choices[-1] = replace(choices[-1], reward=rewards.get(span.span_id))
        triplets += choices
    return CallsOfAttempt(num_calls=len(calls), triplets=triplets, dropped=dropped)


def calls_of_agents(spans: Sequence[Span], *, agents: Sequence[str] | None = None) -> list[Span]:
    """Return the answered calls of these agents, in their order; None is everyone."""
    return [span for span in _in_order(spans) if is_call(span) and _wanted(span, agents)]


def is_cut_off(spans: Sequence[Span], *, agents: Sequence[str] | None = None) -> bool:
    """Whether an answer to one of these agents ended at the token limit."""
    reasons = (
        call.attributes.get(key.FINISH_REASONS) or [None] for call in calls_of_agents(spans, agents=agents)
    )
    return any(of_call[0] == "length" for of_call in reasons)


def _in_order(spans: Sequence[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.sequence_id or 0, span.start_time_ns))


def is_call(span: Span) -> bool:
    """Whether the span is the proxy's record of an answered model call.

    The record has exact ids or the cause of their absence. An instrumented library's own span of the same call has
    neither, and may have the same name.
    """
    recorded = key.PROMPT_TOKEN_IDS in span.attributes or key.MISSING_IDS_CAUSE in span.attributes
    return recorded and span.name.startswith(key.CHAT_SPAN_PREFIX) and span.status.code != "error"


def _wanted(span: Span, agents: Sequence[str] | None) -> bool:
    if agents is None:
        return True
    name = str(span.attributes.get(key.AGENT) or "")
    return any(re.fullmatch(pattern, name) for pattern in agents)


def _rewards_of_calls(calls: Sequence[Span], spans: Sequence[Span]) -> dict[str, float]:
    """The rewards emitted behind each of the calls and before the next one of them ended, summed.

    By the clock: a call's span is stored at once, a reward's only with the next batch, so sequence ids invert them.
    """
    ends = sorted((call.end_time_ns or call.start_time_ns, call.span_id) for call in calls)
    rewards: dict[str, float] = {}
    for span in spans:
        if span.name != key.REWARD_SPAN or key.REWARD_VALUE not in span.attributes:
            continue
        before = bisect_right(ends, span.start_time_ns, key=itemgetter(0))
        if before:
            last = ends[before - 1][1]
            rewards[last] = rewards.get(last, 0.0) + float(span.attributes[key.REWARD_VALUE])
    return rewards


def _triplet(span: Span, index: int) -> Triplet | str:
    """The choice as a triplet without a reward, or the cause for which there is none."""
    attributes = span.attributes
    cause = attributes.get(key.of_choice(key.MISSING_IDS_CAUSE, index))
    if cause:
        return str(cause)
    try:
        prompt = ids_from_packed(attributes[key.PROMPT_TOKEN_IDS])
        response = ids_from_packed(attributes[key.of_choice(key.RESPONSE_TOKEN_IDS, index)])
        logprobs = floats_from_packed(attributes[key.of_choice(key.RESPONSE_LOGPROBS, index)])
    except KeyError:
        return "no_token_ids"
    except ValueError:
        return "unreadable_token_ids"
    if not response:
        return "empty_response"
    if len(response) != len(logprobs):
        return "length_mismatch"
    return Triplet(
        rollout_id=span.rollout_id or "",
        attempt_id=span.attempt_id or "",
        span_id=span.span_id,
        sequence_id=span.sequence_id or 0,
        agent=attributes.get(key.AGENT),
        prompt_ids=prompt,
        response_ids=response,
        response_logprobs=logprobs,
        temperature=float(attributes.get(key.TEMPERATURE, 1.0)),
        policy_version=int(attributes.get(key.POLICY_VERSION, 0)),
        finish_reason=next(_at(attributes.get(key.FINISH_REASONS), index), None),
    )


def _at(values: Any, index: int) -> Iterator[str]:
    if isinstance(values, list | tuple) and index < len(values):  # pyright: ignore[reportUnknownArgumentType]
        yield str(values[index])  # pyright: ignore[reportUnknownArgumentType]
