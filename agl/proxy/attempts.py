"""AttemptDirectory: which attempts may call, the sampling that their resources force, and what their dialects remember.

Reads are cached: resources are immutable, an ended attempt stays ended, a live one is read again every second. So a
call may still pass within a second after its attempt ended; the store keeps its span as history.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from agl.errors import NotFoundError
from agl.proxy.admission import Caller
from agl.proxy.dialects.base import Memory
from agl.proxy.refusal import CallRefusedError
from agl.store.base import LightningStore
from agl.types import LLM, Attempt, AttemptQuery, NamedResources, ProxyLLM, Rollout

K = TypeVar("K")
V = TypeVar("V")

_RECHECK_SECONDS = 1.0  # how long a live attempt is taken at its word
_MAX_ATTEMPTS = 4096
_MAX_RESOURCES = 64
_MAX_MEMORIES = 1024  # the attempts that talked last keep theirs
_MAX_MEMORY_BYTES = 256 * 2**20  # of all of them together
_LIVE = ("preparing", "running")


@dataclass(slots=True)
class _Seat:
    """What is known of one attempt."""

    resources: NamedResources | None
    checked_at: float
    ended: str | None = None
    """Why it may no longer call."""
    seed: int | None = None
    """Of the rollout's sampling, where whoever enqueued it gave one."""
    mode: str | None = None
    run_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the rollout."""
    num_calls: int = 0
    caller: Caller | None = None
    """Of the latest call."""


class AttemptDirectory:
    """Looks attempts up in the store, with a bounded memory."""

    def __init__(self, store: LightningStore, *, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._seats: OrderedDict[tuple[str, str], _Seat] = OrderedDict()
        self._resources: OrderedDict[str, NamedResources] = OrderedDict()
        self._memories: OrderedDict[tuple[str, str], Memory] = OrderedDict()

    async def resources_for_call(self, rollout_id: str, attempt_id: str) -> NamedResources | None:
        """Return what the attempt was given, None when the store has no resources for it.

        Raises:
            CallRefusedError: 404 for an unknown rollout or attempt, 409 for one that is over.
            StoreUnavailableError: the store cannot be asked.
        """
        now = self._monotonic()
        seat = self._seats.get((rollout_id, attempt_id))
        if seat is None:
            found = await self._new_seat(rollout_id, attempt_id, now)
            seat = self._seats.get((rollout_id, attempt_id))  # a call beside this one may have been faster
            if seat is None:
                seat = found
                _remember(self._seats, (rollout_id, attempt_id), seat, _MAX_ATTEMPTS)
        elif seat.ended is None and now - seat.checked_at >= _RECHECK_SECONDS:
            latest = await self._store.get_latest_attempt(rollout_id)
            seat.ended = await self._end_of(rollout_id, attempt_id, latest)
            seat.checked_at = now
        if seat.ended is not None:
            raise CallRefusedError(seat.ended, status=409, code="attempt_over", retry=False)
        return seat.resources

    def seed_of_next_call(self, rollout_id: str, attempt_id: str) -> int | None:
        """Return a seed for the attempt's next call, None when its rollout has none in ``metadata["seed"]``.

        It follows from the rollout's seed and the call's number, so that the same rollout samples the same tokens in a
        repeated or resumed run.
        """
        seat = self._seats.get((rollout_id, attempt_id))
        if seat is None or seat.seed is None:
            return None
        seat.num_calls += 1
        return Random(f"{seat.seed}/{seat.num_calls}").getrandbits(31)

    def mode_of(self, rollout_id: str, attempt_id: str) -> str | None:
        """Return the mode of the rollout of an attempt that was looked up, None when that was forgotten since."""
        seat = self._seats.get((rollout_id, attempt_id))
        return seat.mode if seat is not None else None

    def caller(self, rollout_id: str, attempt_id: str, agent: str | None) -> Caller:
        """Return whose calls an attempt's are, as far as it was looked up and not forgotten since."""
        seat = self._seats.get((rollout_id, attempt_id))
        if seat is None:
            return Caller(rollout_id=rollout_id, attempt_id=attempt_id, agent=agent)
        if seat.caller is None or seat.caller.agent != agent:
            seat.caller = Caller(
                rollout_id=rollout_id,
                attempt_id=attempt_id,
                agent=agent,
                run_id=seat.run_id,
                metadata=seat.metadata,
            )
        return seat.caller

    def memory_of(self, rollout_id: str, attempt_id: str, new: Callable[[], Memory]) -> Memory:
        """Return what a dialect remembers of the attempt; a ``new`` one the first time, and after it was forgotten."""
        memory = self._memories.pop((rollout_id, attempt_id), None) or new()
        _remember(self._memories, (rollout_id, attempt_id), memory, _MAX_MEMORIES)
        held = sum(each.num_bytes for each in self._memories.values())
        while held > _MAX_MEMORY_BYTES and len(self._memories) > 1:
            _, forgotten = self._memories.popitem(last=False)
            held -= forgotten.num_bytes
        return memory

    async def _new_seat(self, rollout_id: str, attempt_id: str, now: float) -> _Seat:
        try:
            rollout, latest = await asyncio.gather(
                self._store.get_rollout_by_id(rollout_id), self._store.get_latest_attempt(rollout_id)
            )
        except NotFoundError as error:
            message = f"rollout {rollout_id} is not in the store that this proxy records to"
            raise CallRefusedError(message, status=404, code="unknown_rollout") from error
        ended = await self._end_of(rollout_id, attempt_id, latest)
        resources = None if ended else await self._resources_of(rollout)
        seed = rollout.metadata.get("seed")
        return _Seat(
            resources,
            now,
            ended,
            seed if isinstance(seed, int) else None,
            rollout.mode,
            rollout.run_id,
            rollout.metadata,
        )

    async def _end_of(self, rollout_id: str, attempt_id: str, latest: Attempt | None) -> str | None:
        """Why the attempt may not call, None while it may."""
        if latest is not None and latest.attempt_id == attempt_id:
            if latest.status in _LIVE:
                return None
            return f"attempt {attempt_id} of rollout {rollout_id} is over ({latest.status}); it can make no more calls"
        attempts = await self._store.query_attempts(AttemptQuery(rollout_id=rollout_id))
        if latest is not None and any(attempt.attempt_id == attempt_id for attempt in attempts.items):
            return (
                f"attempt {attempt_id} of rollout {rollout_id} was superseded by attempt {latest.attempt_id}"
            )
        message = f"rollout {rollout_id} has no attempt {attempt_id}"
        raise CallRefusedError(message, status=404, code="unknown_attempt")

    async def _resources_of(self, rollout: Rollout) -> NamedResources | None:
        if rollout.resources_id is None:
            return await self._store.get_latest_resources(run_id=rollout.run_id)
        known = self._resources.get(rollout.resources_id)
        if known is None:
            known = await self._store.get_resources_by_id(rollout.resources_id)
            _remember(self._resources, rollout.resources_id, known, _MAX_RESOURCES)
        return known


def llm_of_call(
    resources: NamedResources | None, model: str, *, routed_to: str | None = None
) -> LLM | ProxyLLM | None:
    """Return the resource whose sampling is forced on a call, and its model where the call is not routed.

    That is the ProxyLLM whose model the call names (``llm`` before others), else the resource named ``llm``. A call
    that is ``routed_to`` an endpoint's model is forced by nothing but a ProxyLLM of that model.
    """
    if resources is None:
        return None
    default = resources.resources.get("llm")
    named = [default, *resources.resources.values()]
    for resource in named:
        if isinstance(resource, ProxyLLM) and resource.model == (routed_to or model):
            return resource
    if routed_to is not None:
        return None
    return default if isinstance(default, LLM | ProxyLLM) else None


def sampling_of(llm: LLM | ProxyLLM | None) -> Mapping[str, Any]:
    """Return the request parameters that the resource forces on its calls."""
    return llm.sampling if llm is not None else {}


def _remember(memory: OrderedDict[K, V], name: K, value: V, limit: int) -> None:
    """Keep the newest ``limit`` entries."""
    memory[name] = value
    while len(memory) > limit:
        memory.popitem(last=False)
