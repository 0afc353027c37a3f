"""Examples: recorded or written interactions to learn from, whatever their source; and which of them are chosen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from agl.algorithms.sampling import Batch
from agl.types import Json, TrainingSample, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One interaction as exact tokens.

    Args:
        example_id: the rollout's id, or file and line.
        group_id: of the interactions that were made under equal conditions, so that rewards can be compared.
        task: what it is about, as text that is equal for equal tasks.
        reward: None for one that a person wrote: it is good by being given.
        trajectories: its sequences; the mask covers what the policy is to say.
    """

    example_id: str
    group_id: str
    task: str
    reward: float | None
    trajectories: Sequence[Trajectory]

    @property
    def is_cut_off(self) -> bool:
        """Whether one of its answers ended at the token limit."""
        return any(one.truncated for one in self.trajectories)

    @property
    def content(self) -> Hashable:
        """Equal for interactions that are the same tokens."""
        return tuple((*one.token_ids, -1, *one.loss_mask) for one in self.trajectories)

    @property
    def num_tokens(self) -> int:
        """Tokens under the mask."""
        return sum(sum(one.loss_mask) for one in self.trajectories)


class Judged(Protocol):
    """What of an interaction says whether it is worth imitating; ``Example`` says what each of it is."""

    @property
    def example_id(self) -> str:
        """Its own id."""
        ...

    @property
    def task(self) -> str:
        """What it is about."""
        ...

    @property
    def reward(self) -> float | None:
        """How good it is."""
        ...

    @property
    def is_cut_off(self) -> bool:
        """Whether an answer ended at the token limit."""
        ...

    @property
    def content(self) -> Hashable:
        """Equal for interactions in which the same was said."""
        ...


J = TypeVar("J", bound=Judged)


def task_text(task: Json) -> str:
    """Return the same text for equal tasks."""
    return json.dumps(task, sort_keys=True, ensure_ascii=False)


def examples_of_batch(batch: Batch, tasks: dict[str, Json]) -> list[Example]:
    """Return the usable rollouts of a batch; ``tasks`` has the task of each group."""
    return [
        Example(
            example_id=rollout.rollout_id,
            group_id=rollout.group_id,
            task=task_text(tasks[rollout.group_id]),
            reward=rollout.reward,
            trajectories=rollout.trajectories,
        )
        for rollout in batch.rollouts
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curated(Generic[J]):
    """The chosen examples in their order, and how many were left out, by cause."""

    examples: list[J]
    left_out: Counter[str]


def curated(examples: Iterable[J], *, min_reward: float, top_k: int | None, dedupe: bool) -> Curated[J]:
    """Choose what is worth imitating.

    Left out are interactions below ``min_reward`` (``below_reward``), those of which an answer was cut off at the token
    limit (``cut_off``), with ``dedupe`` all but the first of those of a task that are the same tokens (``duplicate``),
    and of each task all but the ``top_k`` best, earlier ones first among equals (``beyond_top_k``).
    """
    left_out: Counter[str] = Counter()
    by_task: dict[str, list[J]] = {}
    order: dict[str, int] = {}
    seen: set[tuple[str, Hashable]] = set()
    for example in examples:
        cause = _refused(example, min_reward)
        if cause is None and dedupe:
            said = (example.task, example.content)
            cause = "duplicate" if said in seen else None
            seen.add(said)
        if cause is not None:
            left_out[cause] += 1
            continue
        order[example.example_id] = len(order)
        by_task.setdefault(example.task, []).append(example)
    chosen: list[J] = []
    for of_task in by_task.values():
        best = sorted(of_task, key=lambda one: -(float("inf") if one.reward is None else one.reward))
        chosen += best[:top_k]
        if len(best) > len(best[:top_k]):
            left_out["beyond_top_k"] += len(best) - len(best[:top_k])
    return Curated(examples=sorted(chosen, key=lambda one: order[one.example_id]), left_out=left_out)


def _refused(example: Judged, min_reward: float) -> str | None:
    if example.reward is not None and example.reward < min_reward:
        return "below_reward"
    return "cut_off" if example.is_cut_off else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two interactions about one task, the first of them better by ``margin``."""

    better: Example
    worse: Example
    margin: float


def pairs_of(
    examples: Iterable[Example], *, pairs_per_group: int, min_margin: float
) -> tuple[list[Pair], Counter[str]]:
    """Return each group's best against its worst, second best against second worst, ...; and what gave none, by cause.

    Groups of one are ``single``; those whose best and worst are not ``min_margin`` apart, or are the same tokens, are
    ``equal``. An interaction that was cut off at the token limit can only be the worse one.
    """
    groups: dict[str, list[Example]] = {}
    for example in examples:
        if example.reward is not None:
            groups.setdefault(example.group_id, []).append(example)
    pairs: list[Pair] = []
    without: Counter[str] = Counter()
    for group in groups.values():
        found = list(_pairs_of_group(group, min_margin))[:pairs_per_group]
        pairs += found
        if not found:
            without["single" if len(group) < 2 else "equal"] += 1
    return pairs, without


def _pairs_of_group(group: Sequence[Example], min_margin: float) -> Iterable[Pair]:
    ranked = sorted(group, key=lambda one: -(one.reward or 0.0))
    taken: set[str] = set()
    for better in ranked:
        for worse in reversed(ranked):
            margin = (better.reward or 0.0) - (worse.reward or 0.0)
            if margin <= 0 or margin < min_margin:
                break
            if {better.example_id, worse.example_id} & taken or better.is_cut_off or _same(better, worse):
                continue
            taken |= {better.example_id, worse.example_id}
            yield Pair(better=better, worse=worse, margin=margin)
            break


def _same(one: Example, other: Example) -> bool:
    return [list(t.token_ids) for t in one.trajectories] == [list(t.token_ids) for t in other.trajectories]


def samples_of_example(
    example: Example, *, pair_id: str | None = None, preferred: bool = False
) -> list[TrainingSample]:
    """Return one sample a sequence, of the policy as it is at temperature 1, however it was sampled."""
    return [
        TrainingSample(
            rollout_id=example.example_id,
            token_ids=one.token_ids,
            loss_mask=one.loss_mask,
            policy_version=one.policy_version,
            pair_id=pair_id,
            preferred=preferred,
        )
        for one in example.trajectories
    ]
