"""Triplets -> trajectories: calls whose token ids continue each other become one sequence.

The rule is exact: a call is merged when its prompt ids begin with all ids of an earlier sequence of the same agent,
asked at the same temperature. Otherwise a new sequence begins, so no token is trained that was not sampled in just
that context.
"""

from __future__ import annotations

from collections.abc import Sequence

from agl.types import Trajectory, Triplet


class _Growing:
    """A sequence that may still be continued."""

    def __init__(self, first: Triplet, number: int) -> None:
        self.agent, self.temperature, self.rollout_id = first.agent, first.temperature, first.rollout_id
        self.token_ids = [*first.prompt_ids, *first.response_ids]
        self.loss_mask = [0] * len(first.prompt_ids) + [1] * len(first.response_ids)
        self.logprobs = [0.0] * len(first.prompt_ids) + [*first.response_logprobs]
        self.call_ends = [len(self.token_ids)]
        self.call_rewards = [first.reward]
        self.call_numbers = [number]
        self.policy_version = first.policy_version
        self.finish_reason = first.finish_reason

    def continues_in(self, call: Triplet) -> bool:
        length = len(self.token_ids)
        return (
            call.agent == self.agent
            and call.temperature == self.temperature
            and len(call.prompt_ids) >= length
            # One token tells most apart; comparing all of them copies the prompt, at each of an attempt's sequences.
            and call.prompt_ids[length - 1] == self.token_ids[-1]
            and list(call.prompt_ids[:length]) == self.token_ids
        )

    def append(self, call: Triplet, number: int) -> None:
        between = call.prompt_ids[len(self.token_ids) :]
        self.token_ids += [*between, *call.response_ids]
        self.loss_mask += [0] * len(between) + [1] * len(call.response_ids)
        self.logprobs += [0.0] * len(between) + [*call.response_logprobs]
        self.call_ends.append(len(self.token_ids))
        self.call_rewards.append(call.reward)
        self.call_numbers.append(number)
        self.policy_version = min(self.policy_version, call.policy_version)
        self.finish_reason = call.finish_reason

    def done(self) -> Trajectory:
        return Trajectory(
            rollout_id=self.rollout_id,
            agent=self.agent,
            token_ids=self.token_ids,
            loss_mask=self.loss_mask,
            logprobs=self.logprobs,
            temperature=self.temperature,
            policy_version=self.policy_version,
            call_ends=self.call_ends,
            call_rewards=self.call_rewards,
            call_numbers=self.call_numbers,
            truncated=self.finish_reason == "length",
        )


def trajectories_from_triplets(triplets: Sequence[Triplet]) -> list[Trajectory]:
    """Merge one attempt's calls, given in order, into as few sequences as exact prefixes allow.

    Sequences come in the order of their first call. A call that could continue several goes to the longest.
    """
    growing: list[_Growing] = []
    for number, call in enumerate(triplets):
        fitting = [sequence for sequence in growing if sequence.continues_in(call)]
        if fitting:
            max(fitting, key=lambda sequence: len(sequence.token_ids)).append(call, number)
        else:
            growing.append(_Growing(call, number))
    return [sequence.done() for sequence in growing]
