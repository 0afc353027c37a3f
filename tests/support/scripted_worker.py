"""A worker of tests: claims rollouts of a real store and does with each what a function says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from recorded_spans import call_span

from agl.store.base import LightningStore
from agl.types import AttemptedRollout, ErrorInfo, Span


@dataclass(frozen=True)
class Script:
    """How one attempt goes: its calls as (prompt, response) ids, then its reward or its error, or no end at all."""

    reward: float | None = None
    error: str | None = None
    hangs: bool = False
    calls: list[tuple[list[int], list[int]]] = field(default_factory=lambda: [([1, 2], [3, 4])])
    service: str | None = None  # that recorded the calls


async def play(store: LightningStore, claim: AttemptedRollout, script: Script) -> None:
    """Record the calls and report the end."""
    rollout, attempt = claim.rollout, claim.attempt
    spans: list[Span] = [
        call_span(number, prompt, response).model_copy(
            update={
                "rollout_id": rollout.rollout_id,
                "attempt_id": attempt.attempt_id,
                "sequence_id": None,
                "trace_id": attempt.attempt_id.rjust(32, "0")[-32:],
                "resource": {"service.name": script.service} if script.service else {},
            }
        )
        for number, (prompt, response) in enumerate(script.calls, 1)
    ]
    if spans:
        await store.add_many_spans(spans)
    if script.hangs:
        return
    if script.error is None:
        await store.update_attempt(
            rollout.rollout_id, attempt.attempt_id, status="succeeded", reward=script.reward
        )
    else:
        error = ErrorInfo(cause=script.error, message=f"{script.error} in the script")
        await store.update_attempt(rollout.rollout_id, attempt.attempt_id, status="failed", error=error)


@asynccontextmanager
async def scripted_worker(
    store: LightningStore, script_of: Callable[[AttemptedRollout], Script]
) -> AsyncGenerator[list[AttemptedRollout]]:
    """Work in the background until the block ends; yields the list of what was claimed."""
    claimed: list[AttemptedRollout] = []

    async def work() -> None:
        while True:
            claims = await store.dequeue_many_rollouts(worker_id="scripted", limit=16, wait_seconds=5.0)
            for claim in claims:
                claimed.append(claim)
                await play(store, claim, script_of(claim))

    task = asyncio.create_task(work())
    try:
        yield claimed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
