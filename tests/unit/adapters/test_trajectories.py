"""Merging is exact: only calls whose ids continue each other become one sequence."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agl.adapters.trajectories import trajectories_from_triplets
from agl.types import Triplet


def triplet(
    prompt: Sequence[int],
    response: Sequence[int],
    *,
    agent: str | None = None,
    temperature: float = 1.0,
    version: int = 0,
) -> Triplet:
    return Triplet(
        rollout_id="r",
        attempt_id="a",
        span_id="s",
        sequence_id=1,
        agent=agent,
        prompt_ids=prompt,
        response_ids=response,
        response_logprobs=[-float(token) for token in response],
        temperature=temperature,
        policy_version=version,
        finish_reason="stop",
        reward=None,
    )


def test_a_continued_conversation_is_one_sequence_with_a_mask_on_the_sampled_tokens_only() -> None:
    (sequence,) = trajectories_from_triplets([triplet([1, 2], [3, 4]), triplet([1, 2, 3, 4, 9, 9], [5])])
    assert list(sequence.token_ids) == [1, 2, 3, 4, 9, 9, 5]
    assert list(sequence.loss_mask) == [0, 0, 1, 1, 0, 0, 1]
    assert list(sequence.logprobs) == [0, 0, -3, -4, 0, 0, -5]
    assert list(sequence.call_ends) == [4, 7]


def test_one_changed_token_begins_a_new_sequence() -> None:
    sequences = trajectories_from_triplets([triplet([1, 2], [3, 4]), triplet([1, 2, 3, 7, 9], [5])])
    assert [list(sequence.token_ids) for sequence in sequences] == [[1, 2, 3, 4], [1, 2, 3, 7, 9, 5]]


def test_agents_and_temperatures_are_not_mixed() -> None:
    first = triplet([1], [2])
    assert len(trajectories_from_triplets([first, triplet([1, 2, 3], [4], agent="other")])) == 2
    assert len(trajectories_from_triplets([first, triplet([1, 2, 3], [4], temperature=0.7)])) == 2


def test_interleaved_conversations_are_kept_apart() -> None:
    calls = [triplet([1], [2]), triplet([7], [8]), triplet([1, 2, 5], [3]), triplet([7, 8, 5], [9])]
    sequences = trajectories_from_triplets(calls)
    assert [list(s.token_ids) for s in sequences] == [[1, 2, 5, 3], [7, 8, 5, 9]]
    assert [list(s.call_numbers) for s in sequences] == [[0, 2], [1, 3]]


def test_the_oldest_policy_version_counts() -> None:
    (sequence,) = trajectories_from_triplets([triplet([1], [2], version=4), triplet([1, 2], [3], version=5)])
    assert sequence.policy_version == 4


def test_a_call_that_continues_nothing_is_told_without_copying_its_prompt() -> None:
    class Counted(list[int]):
        copies = 0

        def __getitem__(self, place):  # type: ignore[no-untyped-def]
            Counted.copies += isinstance(place, slice)
            return super().__getitem__(place)

    apart = [triplet(Counted([1] * 10 + [index] * 10 * (index + 1)), [99]) for index in range(20)]
    assert len(trajectories_from_triplets(apart)) == 20
    assert Counted.copies == 0


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), min_size=1, max_size=6),
            st.lists(st.integers(0, 3), min_size=1, max_size=3),
        ),
        max_size=6,
    )
)
def test_no_sampled_token_is_lost_or_trained_twice(calls: list[tuple[list[int], list[int]]]) -> None:
    sequences = trajectories_from_triplets([triplet(prompt, response) for prompt, response in calls])
    assert sum(sum(sequence.loss_mask) for sequence in sequences) == sum(
        len(response) for _, response in calls
    )
    for sequence in sequences:
        assert len(sequence.token_ids) == len(sequence.loss_mask) == len(sequence.logprobs)
        assert all(
            logprob == -token
            for token, mask, logprob in zip(
                sequence.token_ids, sequence.loss_mask, sequence.logprobs, strict=True
            )
            if mask
        )
