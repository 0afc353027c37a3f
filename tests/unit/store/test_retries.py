from __future__ import annotations

import asyncio
import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.store.retries import pause_seconds, retry_at
from agl.store.sqlite import SqliteStore
from agl.types import AttemptedRollout, Rollout, RolloutConfig, RolloutQuery, RolloutRequest, RolloutStatus


def config(delay: float, longest: float = 300.0) -> RolloutConfig:
    return RolloutConfig(retry_delay_seconds=delay, retry_max_delay_seconds=longest)


def test_a_pause_is_what_the_formula_says() -> None:
    # min(3 * 2**1, 300) = 6 seconds at most; the first 6 bytes of the digest say how much of its half is added.
    digest = hashlib.blake2b(b"ro-7/2", digest_size=6).hexdigest()
    assert digest == "312b48780a03"
    assert pause_seconds(config(3.0), "ro-7", 2) == pytest.approx(3.0 + 3.0 * int(digest, 16) / 2**48)


def test_without_a_delay_the_next_attempt_may_start_at_once() -> None:
    assert retry_at(RolloutConfig(max_attempts=3), "ro", 1, now=10.0) is None
    assert retry_at(config(5.0, longest=0.0), "ro", 1, now=10.0) is None


def test_a_pause_counts_from_the_end_of_the_attempt() -> None:
    assert retry_at(config(4.0), "ro", 1, now=1000.0) == 1000.0 + pause_seconds(config(4.0), "ro", 1)


@given(
    delay=st.floats(0.0, 1e308),
    longest=st.floats(0.0, 1e308),
    rollout_id=st.text(max_size=20),
    number=st.integers(1, 2**63 - 1),
)
def test_every_pause_is_between_half_and_all_of_the_doubled_delay(
    delay: float, longest: float, rollout_id: str, number: int
) -> None:
    allowed = min(delay * 2.0 ** min(number - 1, 64), longest)
    seconds = pause_seconds(config(delay, longest), rollout_id, number)
    assert allowed / 2 <= seconds <= allowed
    assert seconds == pause_seconds(config(delay, longest), rollout_id, number)


def test_rollouts_that_failed_together_do_not_come_back_together() -> None:
    pauses = [pause_seconds(config(10.0), f"ro-{number}", 1) for number in range(1000)]
    assert len(set(pauses)) == 1000
    by_second = [sum(5.0 + second <= pause < 6.0 + second for pause in pauses) for second in range(5)]
    assert sum(by_second) == 1000
    assert min(by_second) > 150  # 200 each, were they spread evenly


CONFIGS = st.builds(
    RolloutConfig,
    timeout_seconds=st.sampled_from([None, 7.0]),
    unresponsive_seconds=st.just(5.0),
    max_attempts=st.integers(1, 4),
    retry_on=st.sampled_from([("failed", "timeout", "unresponsive"), ("failed",), ("unresponsive",), ()]),
    retry_delay_seconds=st.sampled_from([0.0, 1.0, 8.0]),
    retry_max_delay_seconds=st.sampled_from([2.0, 30.0]),
)
FATES = st.sampled_from(["succeed", "fail", "fall silent", "take too long", "be taken back", "cancel"])


class Workers:
    """Claims what it gets at each tick of a clock of whole seconds, and lets attempts meet fates that are drawn."""

    def __init__(self, configs: list[RolloutConfig], draw: st.DataObject) -> None:
        self.now = 1000.0
        self.store = SqliteStore(":memory:", clock=lambda: self.now)
        self.configs = {f"ro-{number}": config for number, config in enumerate(configs)}
        self.draw = draw
        self.slow: list[tuple[str, str]] = []
        self.seen_ends: dict[str, RolloutStatus] = {}

    async def work(self) -> None:
        """Go on until every rollout is terminal; check each claim and each end."""
        async with self.store:
            requests = [
                RolloutRequest(task=0, rollout_id=name, config=config)
                for name, config in self.configs.items()
            ]
            await self.store.enqueue_many_rollouts(requests)
            while len(self.seen_ends) < len(self.configs):
                pauses = {one.rollout_id: one.retry_at for one in await self.rollouts()}
                for held in await self.store.dequeue_many_rollouts(worker_id="w", limit=99):
                    assert (pauses[held.rollout.rollout_id] or 0.0) <= self.now
                    await self.meet_fate(held)
                await self.check()
                self.now += 1.0
                for key in self.slow:
                    await self.store.get_next_span_sequence_id(
                        *key
                    )  # a sign of life, which is no help in the end
            await self.check()

    async def meet_fate(self, held: AttemptedRollout) -> None:
        key = (held.rollout.rollout_id, held.attempt.attempt_id)
        match self.draw.draw(FATES):
            case "succeed":
                await self.store.update_attempt(*key, status="succeeded", reward=1.0)
            case "fail":
                await self.store.update_attempt(*key, status="failed")
            case "take too long" if held.rollout.config.timeout_seconds is not None:
                self.slow.append(key)
            case "be taken back" if held.attempt.sequence_id < 3:
                await self.store.update_rollout(key[0], status="requeuing")
            case "cancel":
                await self.store.cancel_rollout(key[0])
            case _:
                pass  # silence

    async def rollouts(self) -> list[Rollout]:
        return list((await self.store.query_rollouts(RolloutQuery(limit=999))).items)

    async def check(self) -> None:
        counts = await self.store.statistics()
        rollouts = await self.rollouts()
        assert Counter(one.status for one in rollouts) == Counter(counts["rollouts"])
        assert sum(counts["rollouts"].values()) == len(self.configs)
        assert sum(one.num_attempts for one in rollouts) == sum(counts["attempts"].values())
        assert counts["pausing"] == sum(one.retry_at is not None for one in rollouts)
        for one in rollouts:
            if one.finished_at is not None:
                assert self.seen_ends.setdefault(one.rollout_id, one.status) == one.status
                assert one.status in ("succeeded", "failed", "cancelled")
            else:
                assert one.rollout_id not in self.seen_ends


@settings(max_examples=60, deadline=None)
@given(configs=st.lists(CONFIGS, min_size=1, max_size=6), draw=st.data())
def test_every_rollout_ends_exactly_once_and_the_counts_add_up(
    configs: list[RolloutConfig], draw: st.DataObject
) -> None:
    asyncio.run(Workers(configs, draw).work())
