"""Which interactions are worth imitating, and which two of a group are worth comparing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sampled_batches import batch_of, sampled, trajectory

from agl.algorithms.tuning.examples import (
    Example,
    curated,
    examples_of_batch,
    pairs_of,
    samples_of_example,
    task_text,
)


def example(name: str, reward: float | None, *, task: str = "t", tokens: int | None = None) -> Example:
    """An interaction of three tokens, the last of which was sampled; ``tokens`` makes them equal to another's."""
    number = sum(map(ord, name)) if tokens is None else tokens
    one = replace(trajectory([0, 0, 1]), token_ids=[1, 2, number])
    return Example(example_id=name, group_id=task, task=task, reward=reward, trajectories=[one])


def cut_off(one: Example) -> Example:
    return replace(one, trajectories=[replace(one.trajectories[0], truncated=True)])


def names(examples: list[Example]) -> list[str]:
    return [one.example_id for one in examples]


def test_the_threshold_keeps_what_reaches_it_and_what_was_written_by_hand() -> None:
    found = curated(
        [example("a", 0.5), example("b", 0.49), example("c", None), example("d", 0.9)],
        min_reward=0.5,
        top_k=None,
        dedupe=True,
    )
    assert names(found.examples) == ["a", "c", "d"]
    assert found.left_out == Counter(below_reward=1)


def test_of_each_task_the_best_k_stay_in_their_order_and_earlier_ones_win_ties() -> None:
    given = [
        example("a", 0.7),
        example("b", 1.0),
        example("c", 0.9),
        example("d", 0.9),
        example("e", 0.6, task="other"),
    ]
    found = curated(given, min_reward=0.0, top_k=2, dedupe=True)
    assert names(found.examples) == ["b", "c", "e"]
    assert found.left_out == Counter(beyond_top_k=2)


def test_the_same_tokens_count_once_in_a_task_and_not_across_tasks() -> None:
    given = [
        example("a", 1.0, tokens=7),
        example("b", 1.0, tokens=7),
        example("c", 1.0, task="other", tokens=7),
    ]
    assert names(curated(given, min_reward=1.0, top_k=None, dedupe=True).examples) == ["a", "c"]
    assert names(curated(given, min_reward=1.0, top_k=None, dedupe=False).examples) == ["a", "b", "c"]
    other_mask = replace(given[1], trajectories=[replace(given[1].trajectories[0], loss_mask=[0, 1, 1])])
    both = curated([given[0], other_mask], min_reward=1.0, top_k=None, dedupe=True)
    assert names(both.examples) == ["a", "b"]


def test_an_answer_that_was_cut_off_is_not_imitated() -> None:
    found = curated([cut_off(example("a", 1.0)), example("b", 1.0)], min_reward=1.0, top_k=None, dedupe=True)
    assert names(found.examples) == ["b"]
    assert found.left_out == Counter(cut_off=1)


def test_a_pair_is_the_best_and_the_worst_of_a_group() -> None:
    group = [example("a", 0.2), example("b", 1.0), example("c", 0.0), example("d", 0.9)]
    pairs, without = pairs_of(group, pairs_per_group=1, min_margin=0.0)
    assert [(pair.better.example_id, pair.worse.example_id, pair.margin) for pair in pairs] == [
        ("b", "c", 1.0)
    ]
    assert not without
    more, _ = pairs_of(group, pairs_per_group=5, min_margin=0.0)
    assert [(pair.better.example_id, pair.worse.example_id) for pair in more] == [("b", "c"), ("d", "a")]


def test_groups_without_two_that_differ_enough_are_counted() -> None:
    given = [
        example("a", 1.0, task="even"),
        example("b", 1.0, task="even"),
        example("c", 1.0, task="single"),
        example("d", 1.0, task="close"),
        example("e", 0.8, task="close"),
        example("f", 1.0, task="far"),
        example("g", 0.5, task="far"),
    ]
    pairs, without = pairs_of(given, pairs_per_group=1, min_margin=0.5)
    assert [(pair.better.example_id, pair.worse.example_id) for pair in pairs] == [("f", "g")]
    assert without == Counter(equal=2, single=1)


def test_an_answer_that_was_cut_off_can_be_the_worse_one_only() -> None:
    group = [cut_off(example("a", 1.0)), example("b", 0.8), cut_off(example("c", 0.1))]
    pairs, _ = pairs_of(group, pairs_per_group=2, min_margin=0.0)
    assert [(pair.better.example_id, pair.worse.example_id) for pair in pairs] == [("b", "c")]


def test_the_same_tokens_are_no_pair_whatever_their_rewards() -> None:
    group = [example("a", 1.0, tokens=7), example("b", 0.0, tokens=7), example("c", 0.1)]
    pairs, _ = pairs_of(group, pairs_per_group=1, min_margin=0.0)
    assert [(pair.better.example_id, pair.worse.example_id) for pair in pairs] == [("a", "c")]


def test_rollouts_of_a_batch_keep_task_group_reward_and_tokens() -> None:
    batch = batch_of([sampled("r1", "g1", 1.0, [0, 1]), sampled("r2", "g1", 0.0, [0, 1, 1])])
    first, second = examples_of_batch(batch, {"g1": {"b": 1, "a": 2}})
    assert first.task == second.task == task_text({"a": 2, "b": 1})
    assert (first.group_id, first.reward, second.num_tokens) == ("g1", 1.0, 2)


def test_samples_are_the_exact_tokens_at_temperature_1() -> None:
    one = replace(trajectory([0, 1, 1]), temperature=0.0)
    made = replace(example("a", 1.0), trajectories=[one])
    (sample,) = samples_of_example(made, pair_id="p", preferred=True)
    assert (sample.token_ids, sample.loss_mask, sample.temperature) == (one.token_ids, one.loss_mask, 1.0)
    assert (sample.pair_id, sample.preferred, sample.advantages, sample.old_logprobs) == (
        "p",
        True,
        None,
        None,
    )
