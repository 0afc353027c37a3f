"""The queue's half of the client: rollouts and attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agl.errors import InvalidRequestError, StoreError, StoreUnavailableError
from agl.http.connections import PollCutError
from agl.store import lifecycle, wire
from agl.store.base import RolloutQueue
from agl.store.client.bodies import (
    ATTEMPT,
    ATTEMPT_PAGE,
    CLAIM,
    CLAIMS,
    NAMES,
    ROLLOUT,
    ROLLOUT_LIST,
    ROLLOUT_PAGE,
    ROLLOUTS,
    config_fields,
    decoded,
    encoded,
    fields_json,
    joined,
    matches_nothing,
    parts_within,
    rollout_json,
    segment,
    target,
)
from agl.store.client.caller import Caller
from agl.store.client.lane import Lane
from agl.store.client.waits import Wait
from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptQuery,
    AttemptStatus,
    ErrorInfo,
    Page,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    RolloutStatus,
)

UNDO_SECONDS = 5.0
"""How long a dequeue that nobody waits for any more is taken back in the background."""
OTHERS_SECONDS = 1.0
"""How often a wait for some of more than ``wire.MAX_BATCH`` rollouts looks at those beyond."""
MANY_IDS = 50
"""A query by more ids travels in a body, not in the URL."""


class ClientQueue(RolloutQueue):
    """Rollouts and attempts over the wire."""

    _caller: Caller
    _new_id: Callable[[str], str]

    async def enqueue_many_rollouts(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Append to the queue. All or none for what fits one request (``wire.MAX_BATCH`` rollouts, 4 MiB)."""
        texts = [rollout_json(one, one.rollout_id or self._new_id("ro")) for one in requests]
        lane = await self._caller.lane()
        rollouts: list[Rollout] = []
        for part in parts_within(texts):
            body = await self._caller.call("POST", "/v1/rollouts", joined(texts[part]), lane=lane)
            rollouts += decoded(ROLLOUTS, body)
        return rollouts

    async def dequeue_many_rollouts(
        self,
        *,
        worker_id: str,
        limit: int = 1,
        wait_seconds: float = 0.0,
        request_id: str | None = None,
        run_id: str | None = None,
    ) -> list[AttemptedRollout]:
        """Claim up to ``limit`` rollouts (at most ``wire.MAX_BATCH``). A caller that is cancelled strands nothing.

        All polls of a call share its request id: the store remembers no empty claim, and one whose answer was lost is
        what the next poll must get.
        """
        if not worker_id or limit < 1 or not wait_seconds >= 0.0:
            raise InvalidRequestError(
                f"dequeue needs a worker_id, limit >= 1 and wait_seconds >= 0;"
                f" got {worker_id!r}, {limit} and {wait_seconds}"
            )
        lane = await self._caller.lane()
        key = (worker_id, request_id or self._new_id("rq"))
        await lane.undone(key)
        with lane.visit():
            try:
                return await self._claim(lane, key, min(limit, wire.MAX_BATCH), wait_seconds, run_id)
            except PollCutError:
                lane.undo(key, self._take_back(lane, *key))
                return []
            except asyncio.CancelledError:
                lane.undo(key, self._take_back(lane, *key))
                raise
            except StoreUnavailableError:
                if request_id is None:  # nobody else can ask for this claim again
                    lane.undo(key, self._take_back(lane, *key))
                if lane.closing:
                    return []
                raise

    async def _claim(
        self, lane: Lane, key: tuple[str, str], limit: int, wait_seconds: float, run_id: str | None
    ) -> list[AttemptedRollout]:
        fields = {"worker_id": key[0], "request_id": key[1], "limit": limit, "run_id": run_id}
        repeat = fields_json("a dequeue", **fields)
        wait = Wait(lane, wait_seconds)
        while True:
            seconds = wait.next_poll()
            body = fields_json("a dequeue", **fields, wait_seconds=seconds)
            if seconds:
                answer = await self._caller.poll(
                    lane, "/v1/rollouts/dequeue", body=body, repeat=repeat, seconds=seconds
                )
            else:
                answer = await self._caller.call("POST", "/v1/rollouts/dequeue", repeat, lane=lane)
            claimed = [one.held() for one in decoded(CLAIMS, answer)]
            if claimed or not await wait.goes_on():
                return claimed

    async def _take_back(self, lane: Lane, worker_id: str, request_id: str) -> None:
        """Undo a dequeue whose answer nobody gets; should that fail, too, the attempt's lease runs out."""
        body = fields_json("an undo", worker_id=worker_id, request_id=request_id)
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(UNDO_SECONDS):
                await self._caller.call("POST", "/v1/rollouts/dequeue/undo", body, lane=lane)

    async def undo_dequeue(self, *, worker_id: str, request_id: str) -> list[str]:
        """Take back a dequeue whose answer did not reach its caller."""
        body = fields_json("an undo", worker_id=worker_id, request_id=request_id)
        answer = await self._caller.call("POST", "/v1/rollouts/dequeue/undo", body)
        return decoded(NAMES, answer).get("rollout_ids", [])

    async def start_rollout(
        self, request: RolloutRequest, *, worker_id: str | None = None
    ) -> AttemptedRollout:
        """Make a rollout and its first attempt at once. Not sent twice: the second would conflict with the first."""
        path = target("/v1/rollouts", {"start": "true", "worker_id": worker_id})
        body = rollout_json(request, request.rollout_id)
        return decoded(CLAIM, await self._caller.call("POST", path, body, repeatable=False)).held()

    async def start_attempt(self, rollout_id: str, *, worker_id: str | None = None) -> AttemptedRollout:
        """Open a new attempt of a queued rollout. Not sent twice."""
        path = f"/v1/rollouts/{segment(rollout_id)}/attempts"
        body = fields_json("a start", worker_id=worker_id)
        return decoded(CLAIM, await self._caller.call("POST", path, body, repeatable=False)).held()

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        status: AttemptStatus | None = None,
        worker_id: str | None = None,
        reward: float | None = None,
        reward_dimensions: Mapping[str, float] | None = None,
        error: ErrorInfo | None = None,
    ) -> AttemptedRollout:
        """Report on an attempt; the rollout follows in the same step."""
        dimensions = dict(reward_dimensions or {})
        said = lifecycle.AttemptReport(
            status=status, worker_id=worker_id, reward=reward, reward_dimensions=dimensions, error=error
        )
        lifecycle.check_report(said)  # JSON has no NaN: it would arrive as no reward
        body = fields_json(
            f"the report of attempt {attempt_id}",
            status=status,
            worker_id=worker_id,
            reward=None if reward is None else float(reward),
            reward_dimensions={name: float(value) for name, value in dimensions.items()} or None,
            error=None if error is None else error.__dict__,
        )
        path = f"/v1/rollouts/{segment(rollout_id)}/attempts/{segment(attempt_id)}"
        return decoded(CLAIM, await self._caller.call("PATCH", path, body)).held()

    async def update_rollout(
        self,
        rollout_id: str,
        *,
        status: RolloutStatus | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> Rollout:
        """Change what is given.

        Not sent twice where that could take a rollout back from its next worker (``requeuing``), or change one that the
        first time has ended.
        """
        body = fields_json(
            f"the change of rollout {rollout_id}",
            status=status,
            resources_id=resources_id,
            config=None if config is None else config_fields(config),
            metadata=None if metadata is None else dict(metadata),
            priority=priority,
        )
        only_status = resources_id is None and config is None and priority is None
        repeatable = status is None or (status != "requeuing" and only_status)
        path = f"/v1/rollouts/{segment(rollout_id)}"
        return decoded(ROLLOUT, await self._caller.call("PATCH", path, body, repeatable=repeatable))

    async def cancel_rollout(self, rollout_id: str) -> Rollout:
        """Cancel a rollout and its attempt."""
        return decoded(ROLLOUT, await self._caller.call("POST", f"/v1/rollouts/{segment(rollout_id)}/cancel"))

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout:
        """Return the rollout."""
        return decoded(ROLLOUT, await self._caller.call("GET", f"/v1/rollouts/{segment(rollout_id)}"))

    async def query_rollouts(self, query: RolloutQuery | None = None) -> Page[Rollout]:
        """List rollouts."""
        wanted = query or RolloutQuery()
        if matches_nothing(wanted) or len(wanted.rollout_ids or ()) > MANY_IDS:
            fields = {name: value for name, value in wanted if value is not None}
            answer = await self._caller.call("POST", "/v1/rollouts/query", encoded(fields, "a query"))
        else:
            answer = await self._caller.call("GET", target("/v1/rollouts", wanted))
        return decoded(ROLLOUT_PAGE, answer)

    async def query_attempts(self, query: AttemptQuery) -> Page[Attempt]:
        """List attempts."""
        lane = await self._caller.lane()
        if matches_nothing(query):
            return Page(items=[])
        return decoded(ATTEMPT_PAGE, await self._caller.call("GET", target("/v1/attempts", query), lane=lane))

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        """Return the newest attempt."""
        path = f"/v1/rollouts/{segment(rollout_id)}/attempts/latest"
        return decoded(ATTEMPT, await self._caller.call("GET", path))

    async def wait_for_rollouts(
        self,
        rollout_ids: Sequence[str],
        *,
        timeout_seconds: float | None = None,
        at_least: int | None = None,
    ) -> list[Rollout]:
        """Wait until all (or so many) are terminal or time is up; each poll asks only for those that were not."""
        lane = await self._caller.lane()
        wait = Wait(lane, timeout_seconds)
        found: dict[str, Rollout] = {}
        with lane.visit():
            missing = list(dict.fromkeys(rollout_ids))
            enough = len(missing) if at_least is None else min(at_least, len(missing))
            look_again = len(missing) > wire.MAX_BATCH
            if look_again:  # at all of them once, so that an unknown id is found out
                missing = await self._look(lane, missing, found)
            try:
                while missing:
                    some, seconds = missing[: wire.MAX_BATCH], wait.next_poll()
                    if at_least is not None and len(missing) > len(some):
                        seconds = min(
                            seconds, OTHERS_SECONDS
                        )  # a poll hears nothing of those it does not name
                    wanted = None if at_least is None else max(enough - len(found), 0)
                    await self._ask(lane, some, seconds, found, at_least=wanted)
                    missing = [one for one in missing if one not in found]
                    if at_least is not None and len(missing) > wire.MAX_BATCH:
                        missing = await self._look(lane, missing, found)
                    if len(found) >= enough or not await wait.goes_on():
                        break
                if len(found) < enough and look_again:
                    await self._look(lane, missing, found)
            except PollCutError:
                with suppress(StoreError):
                    await self._look(lane, missing, found)
        return [found[one] for one in rollout_ids if one in found]

    async def _look(self, lane: Lane, rollout_ids: list[str], found: dict[str, Rollout]) -> list[str]:
        """Note those that are terminal, without waiting; return the others."""
        for start in range(0, len(rollout_ids), wire.MAX_BATCH):
            await self._ask(lane, rollout_ids[start : start + wire.MAX_BATCH], 0.0, found)
        return [one for one in rollout_ids if one not in found]

    async def _ask(
        self,
        lane: Lane,
        rollout_ids: list[str],
        seconds: float,
        found: dict[str, Rollout],
        *,
        at_least: int | None = None,
    ) -> None:
        repeat = fields_json("a wait", rollout_ids=rollout_ids)
        if seconds:
            body = fields_json("a wait", rollout_ids=rollout_ids, timeout_seconds=seconds, at_least=at_least)
            answer = await self._caller.poll(
                lane, "/v1/rollouts/wait", body=body, repeat=repeat, seconds=seconds
            )
        else:
            answer = await self._caller.call("POST", "/v1/rollouts/wait", repeat, lane=lane)
        found |= {one.rollout_id: one for one in decoded(ROLLOUT_LIST, answer).get("items", [])}
