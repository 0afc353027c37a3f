"""Spans of one attempt -> triplets: the recorded calls as exact ids, logprobs and rewards.

Nothing is re-tokenized: a call without exact ids yields no triplet and is counted by its cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
    ordered = sorted(spans, key=lambda span: (span.sequence_id or 0, span.start_time_ns))
    calls = [span for span in ordered if is_call(span) and _wanted(span, agents)]
    rewards = _rewards_of_calls(ordered)
    triplets: list[Triplet] = []
    dropped: Counter[str] = Counter()
    for span in calls:
        for index in range(int(span.attributes.get(key.CHOICE_COUNT, 1))):
            triplet = _triplet(span, index, rewards.get(span.span_id))
            if isinstance(triplet, Triplet):
                triplets.append(triplet)
            else:
                dropped[triplet] += 1
    return CallsOfAttempt(num_calls=len(calls), triplets=triplets, dropped=dropped)


def is_call(span: Span) -> bool:
    """Whether the span records a model call that was answered."""
    return span.name.startswith(key.CHAT_SPAN_PREFIX) and span.status.code != "error"


def _wanted(span: Span, agents: Sequence[str] | None) -> bool:
    if agents is None:
        return True
    name = str(span.attributes.get(key.AGENT) or "")
    return any(re.fullmatch(pattern, name) for pattern in agents)


def _rewards_of_calls(ordered: Sequence[Span]) -> dict[str, float]:
    """The reward emitted after each call and before the next one; several are summed."""
    rewards: dict[str, float] = {}
    last: str | None = None
    for span in ordered:
        if is_call(span):
            last = span.span_id
        elif span.name == key.REWARD_SPAN and last is not None and key.REWARD_VALUE in span.attributes:
            rewards[last] = rewards.get(last, 0.0) + float(span.attributes[key.REWARD_VALUE])
    return rewards


def _triplet(span: Span, index: int, reward: float | None) -> Triplet | str:
    """The choice as a triplet, or the cause for which there is none."""
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
        reward=reward,
    )


def _at(values: Any, index: int) -> Iterator[str]:
    if isinstance(values, list | tuple) and index < len(values):  # pyright: ignore[reportUnknownArgumentType]
        yield str(values[index])  # pyright: ignore[reportUnknownArgumentType]
