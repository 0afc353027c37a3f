"""Forks processes that use one served store at the same time; all begin together, each says what it did.

Run as a program: the argument is ``{"role", "url", "processes", ...}``, the rest being what the role takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from pathlib import Path
from typing import Any

from agl.store.client import LightningStoreClient
from agl.types import RolloutRequest, Span

KIBIBYTE = 1024


def text_of(worker: int, number: int) -> str:
    """Return 20 KB that no other write has."""
    return random.Random(worker * 1_000_003 + number).randbytes(10 * KIBIBYTE).hex()


def span_of(worker: int, number: int) -> Span:
    """Return the span of a write."""
    return Span(
        span_id=f"{worker:08x}{number:08x}",
        trace_id="5" * 32,
        name="stress",
        start_time_ns=number,
        attributes={"text": text_of(worker, number)},
    )


def request_of(worker: int, number: int) -> RolloutRequest:
    """Return the rollout of a write."""
    return RolloutRequest(task=text_of(worker, number), rollout_id=f"ro-{worker}-{number}")


async def write(store: LightningStoreClient, worker: int, *, writes: int) -> int:
    """Write spans and rollouts of 20 KB by turns; return how many were acknowledged."""
    done = 0
    for number in range(writes):
        if number % 2:
            stored = await store.add_span(span_of(worker, number))
            done += stored.span_id == f"{worker:08x}{number:08x}"
        else:
            rollout = await store.enqueue_rollout(request_of(worker, number))
            done += rollout.rollout_id == f"ro-{worker}-{number}"
    return done


async def claim(store: LightningStoreClient, worker: int, *, callers: int) -> list[tuple[str, str]]:
    """Claim until the queue is empty, with several callers; return rollouts and attempts."""
    rng = random.Random(worker)
    claimed: list[tuple[str, str]] = []

    async def caller() -> None:
        while held_ones := await store.dequeue_many_rollouts(worker_id=f"w{worker}", limit=rng.randint(1, 4)):
            for held in held_ones:
                claimed.append((held.rollout.rollout_id, held.attempt.attempt_id))
                await store.update_attempt(
                    held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded", reward=1.0
                )

    await asyncio.gather(*(caller() for _ in range(callers)))
    return claimed


ROLES = {"write": write, "claim": claim}


def run(role: str, url: str, worker: int, start: int, **options: Any) -> Any:
    """Wait for the common start, do the work and return what it was."""

    async def work() -> Any:
        async with LightningStoreClient(url) as store:
            os.write(1, b"ready\n")
            await asyncio.to_thread(os.read, start, 1)  # ends when the parent lets go of the pipe
            return await ROLES[role](store, worker, **options)

    return asyncio.run(work())


def main(settings: dict[str, Any]) -> int:
    """Fork, let all begin once a line comes on standard input, and print what each did; return how many failed."""
    start, hold = os.pipe()
    answers: list[int] = []
    for worker in range(settings.pop("processes")):
        answer, say = os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                os.close(hold)
                os.close(answer)
                with os.fdopen(say, "w") as saying:
                    saying.write(json.dumps(run(worker=worker, start=start, **settings)))
                code = 0
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - a fork must never go on as its parent
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(say)
        answers.append(answer)
    sys.stdin.readline()
    os.close(hold)
    for answer in answers:
        with os.fdopen(answer) as said:
            sys.stdout.write(said.read() + "\n")
    return sum(os.wait()[1] != 0 for _ in answers)


async def at_once(role: str, url: str, *, processes: int, **options: Any) -> list[Any]:
    """Run a role in that many processes and return what each did."""
    settings = {"role": role, "url": url, "processes": processes, **options}
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__)),
        json.dumps(settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 * KIBIBYTE * KIBIBYTE,
    )
    assert program.stdout is not None
    assert program.stdin is not None
    for _ in range(processes):
        assert await program.stdout.readline() == b"ready\n"
    program.stdin.write(b"go\n")
    out, _ = await program.communicate()
    assert program.returncode == 0, "a process failed; its traceback is above"
    return [json.loads(line) for line in out.splitlines()]


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
