"""Replays: a rollout whose metadata names another one is answered from that one's record, call by call.

``{"replay_of": ROLLOUT_ID}`` replays every call, ``"replay_from_call": K`` only the record's first K, so that the agent
goes on with new answers after them. A call is answered from the record where it asks the same at the same position: the
agent's n-th call. Calls that ran side by side then may come in another order now. A call that the agent's client
repeated after a failure has one position.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import orjson
from pydantic import Field, ValidationError

from agl.errors import NotFoundError
from agl.proxy.accounts import NOT_ASKED, REPLAY_DIFFERS, SERVICE
from agl.proxy.refusal import CallRefusedError
from agl.store.base import SpanLog
from agl.types import Record, Span, SpanQuery
from agl.types import attributes as key

_NAMES = ("replay_of", "replay_from_call", "replay_strict")
_OF_DELIVERY = ("stream", "stream_options")
_LARGE = (key.INPUT_MESSAGES, key.TOOL_DEFINITIONS)
_MAX_BYTES = 128 * 2**20  # of recordings in memory; another is read again when it is asked for
_MAX_ATTEMPTS = 4096
_PAGE = 100


def request_hash(chat: Mapping[str, Any]) -> str:
    """Return the hash of what an agent asks for: the same for equal canonical requests, streamed or not."""
    asked = {name: value for name, value in chat.items() if value is not None and name not in _OF_DELIVERY}
    return blake2b(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


class ReplayRequest(Record):
    """What a rollout's metadata says about replaying."""

    replay_of: str = Field(min_length=1)
    replay_from_call: int | None = Field(default=None, ge=0)
    """How many calls of the record are replayed; None is all."""
    replay_strict: bool = False
    """Refuse a call that differs from the record, instead of putting it to the model."""


def replay_from_metadata(metadata: Mapping[str, Any]) -> ReplayRequest | None:
    """Return the replay that a rollout's metadata asks for, None when it asks for none.

    Raises:
        CallRefusedError: 400, one of its fields is wrong.
    """
    if not metadata:
        return None
    given = {name: metadata[name] for name in _NAMES if name in metadata}
    if not given:
        return None
    try:
        return ReplayRequest.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        message = f"the rollout's metadata: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise CallRefusedError(message, status=400, code="invalid_replay", retry=False) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call of a recording; ``number`` counts the calls of all agents from 1, in the order in which they began."""

    number: int
    hash: str | None
    span: Span

    def ran_beside(self, other: RecordedCall) -> bool:
        """Whether the two were under way at the same time."""
        mine, theirs = self.span, other.span
        return mine.start_time_ns < (theirs.end_time_ns or 0) and theirs.start_time_ns < (
            mine.end_time_ns or 0
        )


def recording_of(spans: list[Span]) -> dict[str | None, list[RecordedCall]]:
    """Return the calls of an attempt by agent, in the order in which they began.

    A failed call that its agent repeated is left out: the repeat stands at its position.
    """
    calls = sorted(
        (span for span in spans if _is_call(span)), key=lambda span: (span.start_time_ns, span.span_id)
    )
    by_agent: dict[str | None, list[Span]] = {}
    for span in calls:
        of_agent = by_agent.setdefault(span.attributes.get(key.AGENT), [])
        if of_agent and _failed(of_agent[-1]) and _hash(of_agent[-1]) == _hash(span):
            of_agent.pop()
        of_agent.append(span)
    kept = {id(span) for of_agent in by_agent.values() for span in of_agent}
    numbers = {id(span): number for number, span in enumerate((s for s in calls if id(s) in kept), start=1)}
    return {
        agent: [
            RecordedCall(number=numbers[id(span)], hash=_hash(span), span=_slim(span)) for span in of_agent
        ]
        for agent, of_agent in by_agent.items()
    }


@dataclass(slots=True)
class _Progress:
    """How far one agent of an attempt has come."""

    position: int = -1
    taken: set[int] = field(default_factory=set[int])
    failed_hash: str | None = None
    """Of its latest call, where that failed: a repeat of it stays at the position."""

    def advance(self, asked_hash: str) -> int:
        """Return the position of the next call."""
        if asked_hash != self.failed_hash or self.position < 0:
            self.position += 1
        self.failed_hash = None
        return self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the record has for a call; ``mark`` is None where the call is past what is replayed."""

    mark: Literal["hit", "miss"] | None
    span: Span | None = None
    why: str = ""
    """Of a miss."""


class Replays:
    """The recordings that rollouts replay, and how far each has come."""

    def __init__(self, store: SpanLog, *, max_bytes: int = _MAX_BYTES) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._recordings: OrderedDict[str, dict[str | None, list[RecordedCall]]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._progress: OrderedDict[tuple[str, str, str | None], _Progress] = OrderedDict()

    async def find(
        self, asked: ReplayRequest, caller: tuple[str, str, str | None], asked_hash: str
    ) -> Replayed:
        """Return what the record has at the caller's next position.

        Args:
            asked: of the rollout's metadata.
            caller: the ids of rollout and attempt, and the agent.
            asked_hash: of the call.

        Raises:
            CallRefusedError: 404, there is no such rollout; 409, the call differs and the replay is strict.
            StoreError: the record cannot be read.
        """
        recording = await self._recording(asked.replay_of)
        progress = self._progress_of(caller)
        position = progress.advance(asked_hash)
        found = _replayed(asked, recording.get(caller[2], []), progress, position, asked_hash)
        if found.mark == "miss" and asked.replay_strict:
            message = f"this call is not the one that rollout {asked.replay_of} made here: {found.why}"
            raise CallRefusedError(message, status=409, code=REPLAY_DIFFERS, retry=False)
        return found

    def failed(self, caller: tuple[str, str, str | None], asked_hash: str) -> None:
        """Take note that the caller's latest call failed, so that its repeat is no new position."""
        progress = self._progress.get(caller)
        if progress is not None:
            progress.failed_hash = asked_hash

    def _progress_of(self, caller: tuple[str, str, str | None]) -> _Progress:
        progress = self._progress.setdefault(caller, _Progress())
        self._progress.move_to_end(caller)
        if len(self._progress) > _MAX_ATTEMPTS:
            self._progress.popitem(last=False)
        return progress

    async def _recording(self, rollout_id: str) -> dict[str | None, list[RecordedCall]]:
        known = self._recordings.get(rollout_id)
        if known is not None:
            self._recordings.move_to_end(rollout_id)
            return known
        read = recording_of(await self._spans_of(rollout_id))
        size = sum(_size(call.span) for of_agent in read.values() for call in of_agent)
        self._recordings[rollout_id], self._sizes[rollout_id] = read, size
        while len(self._recordings) > 1 and sum(self._sizes.values()) > self._max_bytes:
            forgotten, _ = self._recordings.popitem(last=False)
            del self._sizes[forgotten]
        return read

    async def _spans_of(self, rollout_id: str) -> list[Span]:
        spans: list[Span] = []
        query = SpanQuery(
            rollout_id=rollout_id, attempt_id="latest", name_prefix=key.CHAT_SPAN_PREFIX, limit=_PAGE
        )
        cursor: str | None = None
        while True:
            try:
                page = await self._store.query_spans(query.model_copy(update={"cursor": cursor}))
            except NotFoundError as error:
                raise _nothing_recorded(rollout_id) from error
            spans += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        if not spans:
            raise _nothing_recorded(rollout_id)
        return spans


def _replayed(
    asked: ReplayRequest, calls: list[RecordedCall], progress: _Progress, position: int, asked_hash: str
) -> Replayed:
    limit = asked.replay_from_call
    if position >= len(calls):
        why = f"the record has {len(calls)} calls of this agent"
        return Replayed(mark="miss", why=why) if limit is None else Replayed(mark=None)
    here = calls[position]
    for index, call in enumerate(calls):
        fits = index == position or (index not in progress.taken and call.ran_beside(here))
        if fits and call.hash == asked_hash and (limit is None or call.number <= limit):
            progress.taken.add(index)
            if _failed(call.span):
                return Replayed(mark="miss", why=f"call {call.number} of the record failed")
            return Replayed(mark="hit", span=call.span)
    if limit is not None and here.number > limit:
        return Replayed(mark=None)
    return Replayed(mark="miss", why=f"the request differs from call {here.number} of the record")


def _nothing_recorded(rollout_id: str) -> CallRefusedError:
    message = f"replay_of: the store has no recorded calls of a rollout {rollout_id}"
    return CallRefusedError(message, status=404, code="unknown_replay", retry=False)


def _is_call(span: Span) -> bool:
    return (
        span.resource.get("service.name") == SERVICE and span.attributes.get(key.ERROR_TYPE) not in NOT_ASKED
    )


def _failed(span: Span) -> bool:
    return span.status.code == "error"


def _hash(span: Span) -> str | None:
    return span.attributes.get(key.REQUEST_HASH)


def _slim(span: Span) -> Span:
    """Without what an answer does not need."""
    kept = {name: value for name, value in span.attributes.items() if name not in _LARGE}
    return span.changed(attributes=kept)


def _size(span: Span) -> int:
    return sum(len(value) for value in span.attributes.values() if isinstance(value, str))
