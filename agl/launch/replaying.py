"""What a replay did otherwise than its record: spans, calls and the conversation, compared. Pure.

Spans are compared by name, kind, status, the name of their parent, events and attributes, in the order in which they
began. Left out are ids, times and what is about the delivery of an answer and not the answer: ``NOT_COMPARED``. Of the
causes for which exact token ids are missing only that there is one is compared; of exceptions, not the stack; of logs,
not the time of each line.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agl.adapters.transcript import transcript
from agl.proxy.accounts import REPLAY_DIFFERS
from agl.proxy.replays import RecordedCall, recording_of
from agl.types import Span
from agl.types import attributes as key

NOT_COMPARED = frozenset(
    {
        key.ROLLOUT_ID,
        key.ATTEMPT_ID,
        key.SPAN_SEQUENCE_ID,
        key.MEMORY_ID,
        key.RESPONSE_ID,
        key.LATENCY_SECONDS,
        key.TIME_TO_FIRST_CHUNK,
        key.UPSTREAM,
        key.COST_USD,
        key.REPLAY,
        key.CACHE,
        key.CACHE_KEY,
    }
)
"""Attributes of spans that say who, when, from where and for how much, and not what."""
MAX_LINES = 12
"""Of the difference of one call."""
_ASKED = (
    key.REQUEST_MODEL,
    key.TOOL_DEFINITIONS,
    key.TEMPERATURE,
    key.TOP_P,
    key.MAX_TOKENS,
    key.SEED,
    key.CHOICE_COUNT,
    key.STREAM,
)
_STACK = "exception.stacktrace"
"""Of an exception's event: its lines move with every change of the code."""
_LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)
"""What each record of an attempt's log begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDifference:
    """A call that is not the one of the record.

    Args:
        number: of the record's call at its place, from 1; of the replay's own calls where the record has no more.
        agent: that made it, where it has a name.
        why: in words.
        lines: what was asked then and now, as a diff.
    """

    number: int
    agent: str | None
    why: str
    lines: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDifference:
    """Spans that only one side has, by what they say.

    Args:
        name: of the span.
        side: ``record`` or ``replay``: who has it.
        attributes: names of those that differ from the other side's span at the same place; empty where none is there.
    """

    name: str
    side: str
    attributes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How a replay compares with its record.

    Args:
        num_calls: calls of the record.
        replayed: calls that the record answered.
        calls: those that differ.
        spans: those that differ; empty where both have the same.
        transcript: what differs in the conversation, as a diff.
    """

    num_calls: int
    replayed: int
    calls: list[CallDifference]
    spans: list[SpanDifference]
    transcript: list[str]

    @property
    def identical(self) -> bool:
        """Whether all spans are the same."""
        return not self.spans


def likeness(record: Sequence[Span], replay: Sequence[Span], *, from_call: int | None = None) -> Likeness:
    """Compare the spans of a replay with those of the attempt that it replays.

    Args:
        record: of the attempt.
        replay: of the new one.
        from_call: the first call of the record that a model answered anew; None where all are replayed.
    """
    recording = recording_of(list(record))
    made = _calls_of(replay)
    calls = _call_differences(recording, {span.span_id: span for span in record}, made)
    return Likeness(
        num_calls=sum(map(len, recording.values())),
        replayed=sum(
            span.attributes.get(key.REPLAY) == "hit" for of_agent in made.values() for span in of_agent
        ),
        calls=[one for one in calls if from_call is None or one.number < from_call],
        spans=span_differences(record, replay),
        transcript=changed_lines(transcript(record), transcript(replay), names=("record", "replay")),
    )


def changed_lines(before: str, after: str, *, names: tuple[str, str], context: int = 1) -> list[str]:
    """Return a unified diff, empty where both texts are the same."""
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, n=context, lineterm=""))


def _calls_of(spans: Sequence[Span]) -> dict[str | None, list[Span]]:
    """The calls of a replay by agent, those refused too, without repeats of one that failed."""
    calls: dict[str | None, list[Span]] = {}
    for span in sorted(spans, key=lambda span: (span.start_time_ns, span.span_id)):
        if span.resource.get("service.name") != "agl.proxy" or not span.name.startswith(key.CHAT_SPAN_PREFIX):
            continue
        of_agent = calls.setdefault(span.attributes.get(key.AGENT), [])
        if of_agent and of_agent[-1].status.code == "error" and _hash(of_agent[-1]) == _hash(span):
            of_agent.pop()
        of_agent.append(span)
    return calls


def _hash(span: Span) -> object:
    return span.attributes.get(key.REQUEST_HASH)


def _call_differences(
    recording: Mapping[str | None, list[RecordedCall]],
    whole: Mapping[str, Span],
    made: Mapping[str | None, Sequence[Span]],
) -> list[CallDifference]:
    found: list[CallDifference] = []
    for agent in dict.fromkeys([*recording, *made]):
        then, now = recording.get(agent, []), made.get(agent, [])
        for place, span in enumerate(now):
            if not _differs(span):
                continue
            if place >= len(then):
                why = f"the record has {len(then)} calls of this agent, and this is its call {place + 1}"
                found.append(CallDifference(number=place + 1, agent=agent, why=why, lines=[]))
                continue
            number, old = then[place].number, whole[then[place].span.span_id]
            found.append(_difference(number, agent, old, span))
        if len(now) < len(then):
            why = f"the agent made {len(now)} calls, and the record has {len(then)} of it"
            found.append(CallDifference(number=then[len(now)].number, agent=agent, why=why, lines=[]))
    return sorted(found, key=lambda one: one.number)


def _differs(span: Span) -> bool:
    return span.attributes.get(key.REPLAY) == "miss" or span.attributes.get(key.ERROR_TYPE) == REPLAY_DIFFERS


def _difference(number: int, agent: str | None, old: Span, new: Span) -> CallDifference:
    if old.status.code == "error" and _hash(old) in (None, _hash(new)):
        why = f"call {number} of the record failed: there is no answer to give again"
        return CallDifference(number=number, agent=agent, why=why, lines=[])
    lines = changed_lines(_asked(old), _asked(new), names=("record", "now"))[2:]
    lines = lines if len(lines) <= MAX_LINES else [*lines[: MAX_LINES - 1], "..."]
    if not lines:
        why = f"call {number} differs from the record in what the record does not keep of a request"
        return CallDifference(number=number, agent=agent, why=why, lines=[])
    return CallDifference(
        number=number, agent=agent, why=f"call {number} asks something else than the record", lines=lines
    )


def _asked(span: Span) -> str:
    """A request as lines: the messages, then the parameters."""
    lines: list[str] = []
    for message in _messages(span.attributes.get(key.INPUT_MESSAGES)):
        role, content = str(message.get("role", "?")), message.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        lines += [f"{role}: {line}" for line in text.splitlines() or [""]]
        if message.get("tool_calls"):
            lines.append(f"{role}: {json.dumps(message['tool_calls'], ensure_ascii=False)}")
    lines += [f"{name} = {span.attributes[name]}" for name in _ASKED if name in span.attributes]
    return "\n".join(lines)


def _messages(text: object) -> list[Mapping[str, Any]]:
    """The messages of a request; what is none is shown as one."""
    try:
        found: object = json.loads(text) if isinstance(text, str) else []
    except ValueError:
        return []
    items = cast("list[object]", found) if isinstance(found, list) else [found]
    return [cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {"content": one} for one in items]


def span_differences(record: Sequence[Span], replay: Sequence[Span]) -> list[SpanDifference]:
    """Return the spans that only one side has, empty where both say the same.

    Calls of the record that failed and were repeated by their client are left out, and so are later regrades. Spans
    that began side by side may have changed places.
    """
    kept = {call.span.span_id for calls in recording_of(list(record)).values() for call in calls}
    repeated = {span.span_id for span in record if _is_call(span)} - kept
    then = _said([span for span in record if span.span_id not in repeated])
    now = _said(replay)
    count, other = Counter(text for _, text in then), Counter(text for _, text in now)
    gone, new = _left(then, count - other), _left(now, other - count)
    return [*_named(gone, new, "record"), *_named(new, gone, "replay")]


def _is_call(span: Span) -> bool:
    return span.resource.get("service.name") == "agl.proxy" and span.name.startswith(key.CHAT_SPAN_PREFIX)


def _left(said: Sequence[tuple[Span, str]], only: Counter[str]) -> list[Span]:
    left: list[Span] = []
    for span, text in said:
        if only[text]:
            only[text] -= 1
            left.append(span)
    return left


def _named(here: Sequence[Span], there: Sequence[Span], side: str) -> list[SpanDifference]:
    """Each span with the attributes in which it differs from the other side's next one of that name."""
    others: dict[str, list[Span]] = {}
    for span in there:
        others.setdefault(span.name, []).append(span)
    found: list[SpanDifference] = []
    for span in here:
        match = others[span.name].pop(0) if others.get(span.name) else None
        differing: list[str] = []
        if match is not None:
            mine, theirs = _attributes(span), _attributes(match)
            differing = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
        found.append(SpanDifference(name=span.name, side=side, attributes=differing))
    return found


def _said(spans: Sequence[Span]) -> list[tuple[Span, str]]:
    """Each span with all that is compared of it, as text, in the order in which they began."""
    names = {span.span_id: span.name for span in spans}
    ordered = sorted(
        (span for span in spans if span.name != key.REGRADE_SPAN), key=lambda span: span.start_time_ns
    )
    return [
        (
            span,
            json.dumps(
                [
                    span.name,
                    span.kind,
                    span.status.code,
                    None if span.parent_id is None else names.get(span.parent_id),
                    _attributes(span),
                    [[event.name, _without_places(event.attributes)] for event in span.events],
                ],
                sort_keys=True,
            ),
        )
        for span in ordered
    ]


def _without_places(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name != _STACK}


def _attributes(span: Span) -> dict[str, Any]:
    said = {
        name: value is not None if name.startswith(key.MISSING_IDS_CAUSE) else value
        for name, value in span.attributes.items()
        if name not in NOT_COMPARED
    }
    text = said.get(key.OUTPUT_TEXT)
    if said.get(key.OUTPUT_STREAM) == "log" and isinstance(text, str):
        said[key.OUTPUT_TEXT] = _LOG_TIME.sub("", text)
    return said
