"""What an attempt could not reach: a failure for which the network is to blame is no answer of the agent's.

Such an attempt is reported as one whose runner was lost, so that the rollout is executed again as its policy says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from agl.errors import StoreError
from agl.runners.outcome import Outcome
from agl.runners.resources import ResourceShelf
from agl.runners.retry import delays
from agl.store.address import Distant
from agl.store.lifecycle import rollout_end
from agl.types import AttemptedRollout, ErrorInfo, ProxyLLM

log = logging.getLogger(__name__)

Connects = Callable[[str], Awaitable[bool]]

CONNECT_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 60.0
"""For a proxy to come back; the attempt keeps its place in the runner meanwhile."""


async def excused(
    outcome: Outcome,
    claim: AttemptedRollout,
    *,
    store: object,
    shelf: ResourceShelf,
    begun: float,
    connects: Connects | None = None,
) -> Outcome:
    """Return the outcome as it is reported; waits while the proxy that the agent needed is out of reach.

    Only failures and timeouts of rollouts that have attempts left for a lost runner are looked into.

    Args:
        outcome: of the agent.
        claim: whose it is.
        store: of the runner.
        shelf: has the attempt's resources.
        begun: when the attempt began, of ``time.monotonic``.
        connects: tells whether something listens at a URL.
    """
    again = rollout_end(claim.rollout.config, claim.rollout.num_attempts, "unresponsive") == "requeuing"
    if outcome.status not in ("failed", "timeout") or not again:
        return outcome
    lost = None
    if isinstance(store, Distant) and store.out_of_reach_at is not None and store.out_of_reach_at >= begun:
        lost = "the store was out of reach"
    url = await _waited_for(
        await _proxies(claim, shelf), claim, limit=_limit(claim, begun), connects=connects or connected
    )
    if url is not None:
        lost = f"the proxy {url} was out of reach"
    if lost is None:
        return outcome
    said = f"{outcome.error.cause}: {outcome.error.message}" if outcome.error else outcome.status
    log.warning("rollout %s failed while %s, and is handed back: %s", claim.rollout.rollout_id, lost, said)
    trace = outcome.error.traceback if outcome.error else None
    return Outcome(
        status="unresponsive",
        error=ErrorInfo(
            cause="unresponsive", message=f"{lost}; the agent ended with {said}", traceback=trace
        ),
    )


def _limit(claim: AttemptedRollout, begun: float) -> float:
    """How long a proxy is waited for: no longer than the attempt may take."""
    seconds = claim.rollout.config.timeout_seconds
    if seconds is None:
        return LONGEST_WAIT_SECONDS
    return min(max(begun + seconds - time.monotonic(), 0.0), LONGEST_WAIT_SECONDS)


async def _proxies(claim: AttemptedRollout, shelf: ResourceShelf) -> list[str]:
    """The roots of agl's proxies among what the agent was given."""
    try:
        named = await shelf.named_for(claim.rollout)
    except StoreError:
        return []
    if named is None:
        return []
    return list(dict.fromkeys(one.base_url for one in named.resources.values() if isinstance(one, ProxyLLM)))


async def _waited_for(
    urls: Iterable[str], claim: AttemptedRollout, *, limit: float, connects: Connects
) -> str | None:
    """Wait until all can be connected to; return the one that could not at first."""
    gone = None
    for url in urls:
        if await connects(url):
            continue
        gone = url
        log.warning("the proxy %s is out of reach: rollout %s waits for it", url, claim.rollout.rollout_id)
        try:
            async with asyncio.timeout(limit):
                for delay in delays():
                    await asyncio.sleep(delay)
                    if await connects(url):
                        break
        except TimeoutError:
            break
    return gone


async def connected(url: str) -> bool:
    """Tell whether something listens at a URL."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
            )
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True
