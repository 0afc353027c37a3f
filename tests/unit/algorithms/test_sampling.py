"""A batch holds what can be learned from, and counts everything else by cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from scripted_worker import Script, scripted_worker

from agl.adapters.trace import AdaptedAttempt, TracerTraceToTriplet
from agl.algorithms.groups import GroupCounts, GroupRules
from agl.algorithms.sampling import (
    READ_AT_ONCE,
    Batch,
    GroupRequest,
    check_bad_fraction,
    rollout_seed,
    sample_groups,
)
from agl.errors import RunStoppedError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptedRollout, Page, Rollout, RolloutConfig, Span, SpanQuery

SCRIPTS = {
    "good": Script(reward=1.0),
    "two turns": Script(reward=0.5, calls=[([1], [2]), ([1, 2, 9], [3])]),
    "broken": Script(error="ValueError"),
    "mute": Script(reward=None),
    "silent": Script(reward=1.0, calls=[]),
}


async def sampled(*names: str, group_size: int = 2) -> tuple[Batch, list[Rollout], list[AttemptedRollout]]:
    groups = [GroupRequest(group_id=f"run-i1-g{index}", task=name) for index, name in enumerate(names)]
    async with InMemoryLightningStore() as store:
        resources = await store.add_resources({"x": 1})
        async with scripted_worker(store, lambda claim: SCRIPTS[claim.rollout.task]) as claimed:
            batch, rollouts = await sample_groups(
                store,
                TracerTraceToTriplet(),
                groups,
                group_size=group_size,
                run_id="run",
                resources_id=resources.resources_id,
                seed=5,
                config=RolloutConfig(),
            )
    return batch, rollouts, claimed


async def test_usable_rollouts_are_grouped_and_the_rest_is_counted() -> None:
    batch, _, _ = await sampled(*SCRIPTS)
    assert [[rollout.reward for rollout in group] for group in batch.groups] == [[1.0, 1.0], [0.5, 0.5]]
    counts = batch.counts
    assert counts.enqueued == counts.succeeded + counts.failed.total() + counts.cancelled == 10
    assert dict(counts.failed) == {"ValueError": 2}
    assert (counts.without_reward, counts.without_calls, counts.bad) == (2, 2, 6)


async def test_turns_are_merged_and_tokens_counted() -> None:
    batch, _, _ = await sampled("two turns")
    (rollout, _) = batch.rollouts
    assert [list(t.token_ids) for t in rollout.trajectories] == [[1, 2, 9, 3]]
    assert rollout.num_sampled_tokens == 2
    assert (batch.num_calls, batch.num_exact) == (4, 4)


async def test_the_spans_of_a_few_rollouts_at_a_time_are_in_memory() -> None:
    held, most = 0, 0

    class Watched(InMemoryLightningStore):
        async def query_spans(self, query: SpanQuery) -> Page[Span]:
            nonlocal held, most
            held += 1
            most = max(most, held)
            return await super().query_spans(query)

    class Adapter(TracerTraceToTriplet):
        def adapt(self, spans: Sequence[Span]) -> AdaptedAttempt:
            nonlocal held
            held -= 1
            return super().adapt(spans)

    async with Watched() as store:
        resources = await store.add_resources({"x": 1})
        async with scripted_worker(store, lambda _: Script(reward=1.0)):
            batch, _ = await sample_groups(
                store,
                Adapter(),
                [GroupRequest(group_id="run-i1-g0", task=1)],
                group_size=40,
                run_id="run",
                resources_id=resources.resources_id,
                seed=5,
                config=RolloutConfig(),
            )
    assert len(batch.rollouts) == 40
    assert (held, most) == (0, READ_AT_ONCE)


async def test_seeds_depend_on_the_place_in_the_run_and_not_on_its_name() -> None:
    _, _, claimed = await sampled("good")
    seeds = {claim.rollout.rollout_id: claim.rollout.metadata["seed"] for claim in claimed}
    assert seeds == {
        "run-i1-g0-0": rollout_seed(5, "-i1-g0-0"),
        "run-i1-g0-1": rollout_seed(5, "-i1-g0-1"),
    }


async def test_too_many_bad_rollouts_stop_the_run_with_the_first_cause() -> None:
    batch, rollouts, _ = await sampled("good", "broken", "mute")
    check_bad_fraction(batch, rollouts, max_bad_fraction=0.7)
    with pytest.raises(RunStoppedError, match=r"4 of 6 rollouts .* ValueError: ValueError in the script"):
        check_bad_fraction(batch, rollouts, max_bad_fraction=0.5)


async def sampled_by(
    rules: GroupRules,
    script_of: Callable[[AttemptedRollout], Script],
    *,
    num_groups: int = 2,
    group_size: int = 3,
) -> tuple[Batch, list[Rollout], list[AttemptedRollout]]:
    """Sample twice and compare: what a resumed run finds in the store is the same batch, and nothing runs again."""
    async with InMemoryLightningStore() as store:
        resources = await store.add_resources({"x": 1})
        async with scripted_worker(store, script_of) as claimed:
            results = [
                await sample_groups(
                    store,
                    TracerTraceToTriplet(),
                    [GroupRequest(group_id=f"run-i1-g{index}", task=index) for index in range(num_groups)],
                    group_size=group_size,
                    run_id="run",
                    resources_id=resources.resources_id,
                    seed=5,
                    config=RolloutConfig(),
                    rules=rules,
                )
                for _ in range(2)
            ]
    (batch, rollouts), again = results
    assert (batch, rollouts) == again
    assert len({claim.rollout.rollout_id for claim in claimed}) == len(claimed) == len(rollouts)
    counts, groups = batch.counts, batch.group_counts
    assert counts.enqueued == counts.succeeded + counts.failed.total() + counts.cancelled == len(rollouts)
    assert groups.complete + groups.incomplete + groups.dropped == num_groups
    return batch, rollouts, claimed


def fails(*names: str) -> Callable[[AttemptedRollout], Script]:
    """Fail what is named without the run and the iteration."""
    return lambda claim: Script(
        reward=1.0, error="KeyError" if claim.rollout.rollout_id.removeprefix("run-i1-") in names else None
    )


def names_of(batch: Batch) -> list[list[str]]:
    return [[one.rollout_id.removeprefix("run-i1-") for one in group] for group in batch.groups]


async def test_an_incomplete_group_is_trained_on_its_others_unless_too_few() -> None:
    failing = fails("g0-1", "g1-0", "g1-2")
    batch, _, _ = await sampled_by(GroupRules(), failing)
    assert names_of(batch) == [["g0-0", "g0-2"], ["g1-1"]]
    batch, _, _ = await sampled_by(GroupRules(min_valid=2), failing)
    assert names_of(batch) == [["g0-0", "g0-2"]]
    assert batch.group_counts == GroupCounts(incomplete=1, dropped=1, dropped_rollouts=1)


async def test_an_incomplete_group_can_be_dropped() -> None:
    batch, _, _ = await sampled_by(GroupRules(incomplete="drop"), fails("g1-0"))
    assert names_of(batch) == [["g0-0", "g0-1", "g0-2"]]
    assert batch.group_counts == GroupCounts(complete=1, dropped=1, dropped_rollouts=2)


async def test_an_incomplete_group_is_filled_with_new_rollouts() -> None:
    failing = fails("g0-1", "g1-0", "g1-0-fill1")
    batch, _, claimed = await sampled_by(GroupRules(incomplete="fill"), failing)
    assert names_of(batch) == [["g0-0", "g0-2", "g0-1-fill1"], ["g1-1", "g1-2", "g1-0-fill2"]]
    assert batch.group_counts == GroupCounts(complete=2, filled=3)
    assert dict(batch.counts.failed) == {"KeyError": 3}
    seeds = {claim.rollout.rollout_id: claim.rollout.metadata["seed"] for claim in claimed}
    assert len(set(seeds.values())) == 9  # each samples anew
    assert seeds["run-i1-g1-0-fill2"] == rollout_seed(5, "-i1-g1-0-fill2")


async def test_filling_is_bounded() -> None:
    failing = fails("g0-1", "g0-1-fill1", "g0-1-fill2", "g0-1-fill3")
    batch, _, _ = await sampled_by(GroupRules(incomplete="fill", fill_rounds=2), failing)
    assert batch.group_counts == GroupCounts(complete=1, incomplete=1, filled=2)
    assert names_of(batch)[0] == ["g0-0", "g0-2"]


async def test_stragglers_are_cut_off_counted_and_not_filled() -> None:
    def late(claim: AttemptedRollout) -> Script:
        return Script(reward=1.0, hangs=claim.rollout.rollout_id.endswith("g1-2"))

    rules = GroupRules(wait_fraction=0.8, incomplete="fill")
    batch, rollouts, _ = await sampled_by(rules, late)
    assert names_of(batch) == [["g0-0", "g0-1", "g0-2"], ["g1-0", "g1-1"]]
    assert (batch.counts.cancelled, batch.counts.stragglers, len(rollouts)) == (1, 1, 6)
    check_bad_fraction(batch, rollouts, max_bad_fraction=0.0)  # cut off on purpose is not bad
