"""How long a rollout pauses before its next attempt: exponential back-off with jitter, decided by the store.

A pure function of the rollout's id, its config and the number of attempts so far: every store decides the same, and a
test needs neither a seed nor a patch.
"""

from __future__ import annotations

import hashlib

from agl.types import RolloutConfig

FACTOR = 2.0
"""Each pause is twice the one before."""
MAX_DOUBLINGS = 64
"""2**64 times any pause worth writing down is beyond ``retry_max_delay_seconds``."""


def retry_at(config: RolloutConfig, rollout_id: str, num_attempts: int, *, now: float) -> float | None:
    """Return when the next attempt may start, where attempt ``num_attempts`` ended now; None is at once."""
    seconds = pause_seconds(config, rollout_id, num_attempts)
    return now + seconds if seconds > 0.0 else None


def pause_seconds(config: RolloutConfig, rollout_id: str, num_attempts: int) -> float:
    """Return the pause behind attempt ``num_attempts``, between half and all of what the back-off allows.

    Half of it is kept, so that a service that is down gets its rest ("equal jitter" in
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    doublings = min(num_attempts - 1, MAX_DOUBLINGS)
    longest = min(config.retry_delay_seconds * FACTOR**doublings, config.retry_max_delay_seconds)
    return longest / 2.0 * (1.0 + _fraction(f"{rollout_id}/{num_attempts}"))


def _fraction(text: str) -> float:
    """Return a number in [0, 1) that looks random and is the same for the same text everywhere."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
