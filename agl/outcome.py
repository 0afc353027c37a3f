"""Outcome: what a finished run tells its user: before and after, sample transcripts, where things are, what to do
next.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agl.adapters.transcript import transcript
from agl.algorithms.base import RunResult
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.rollouts import spans_of_rollout
from agl.store.base import LightningStore
from agl.types import Rollout

NUM_TRANSCRIPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTranscript:
    """One validation task as the final policy handled it, and, where that differs, as the first policy did."""

    title: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run and the run's folder."""

    result: RunResult
    transcripts: list[SampleTranscript]
    run_dir: Path
    name: str

    def lines(self) -> list[str]:
        """Return the closing report, a line an item."""
        return [*self._results(), *self._samples(), *self._places(), *self._next()]

    def _results(self) -> list[str]:
        lines = ["Held-out reward (95% interval)"]
        for before, after in zip(self.result.before, self.result.after, strict=True):
            label = (
                before.name.removeprefix("val/")
                .replace("reward_greedy", "greedy")
                .replace("reward", "sampled")
            )
            lines.append(
                f"  {label:8} before {before.reward}   after {after.reward}   {after.reward.num_tasks} tasks"
            )
            bad = after.counts.bad
            if bad:
                lines.append(
                    f"           {bad} of {after.counts.enqueued} rollouts gave no reward: not in the mean"
                )
        counts = self.result.counts
        failed = ", ".join(f"{cause} {count}" for cause, count in counts.failed.most_common()) or "0"
        lines.append(
            f"Training rollouts: {counts.enqueued} enqueued = {counts.succeeded} succeeded"
            f" + {counts.failed.total()} failed + {counts.cancelled} cancelled; failed by cause: {failed};"
            f" without reward: {counts.without_reward}; without calls: {counts.without_calls}"
        )
        return [*lines, *(f"Note: {line}" for line in self.result.diagnosis)]

    def _samples(self) -> list[str]:
        lines: list[str] = []
        for sample in self.transcripts:
            lines += ["", sample.title]
            if sample.before is not None:
                lines += ["  before training:", sample.before, "  after training:"]
            lines.append(sample.after)
        return lines

    def _places(self) -> list[str]:
        lines = ["", f"Run folder   {self.run_dir}"]
        if self.result.policy_dir:
            lines.append(f"Policy       {self.result.policy_dir} (an ordinary Hugging Face folder)")
        if self.result.checkpoint_dir:
            lines.append(f"Checkpoint   {self.result.checkpoint_dir}")
        return [*lines, f"Metrics      {self.run_dir / 'metrics.jsonl'}"]

    def _next(self) -> list[str]:
        lines = ["", "Next", f"  agl train --resume {self.run_dir} algorithm.iterations=...     train on"]
        if self.result.policy_dir:
            lines.append(
                f"  agl train +recipe=... policy.path={self.result.policy_dir}     start from this policy"
            )
        return lines


async def outcome_of(result: RunResult, *, store: LightningStore, run_dir: Path, name: str) -> Outcome:
    """Read the sample transcripts out of the store and return the outcome."""
    transcripts: list[SampleTranscript] = []
    if result.before and result.after:
        for title, index in _choose(result.before[-1], result.after[-1]):
            first, last = result.before[-1].rollouts[index][0], result.after[-1].rollouts[index][0]
            changed = first.reward != last.reward
            transcripts.append(
                SampleTranscript(
                    title=f"{title}: reward {_shown(first)} -> {_shown(last)}  task {_short(last.task)}",
                    before=await _text(store, first) if changed else None,
                    after=await _text(store, last),
                )
            )
    return Outcome(result=result, transcripts=transcripts, run_dir=run_dir, name=name)


def _choose(before: Evaluation, after: Evaluation) -> list[tuple[str, int]]:
    """Task numbers worth reading: one improved, one still without full reward, one kept; at most three."""
    kinds: dict[str, int] = {}
    for index in range(len(after.rollouts)):
        old, new = before.reward_of_task(index), after.reward_of_task(index)
        if old is None or new is None:
            continue
        kind = "Improved" if new > old else "Got worse" if new < old else "Kept" if new > 0 else "Still wrong"
        kinds.setdefault(kind, index)
    order = ("Improved", "Still wrong", "Got worse", "Kept")
    return [(kind, kinds[kind]) for kind in order if kind in kinds][:NUM_TRANSCRIPTS]


async def _text(store: LightningStore, rollout: Rollout) -> str:
    return transcript(await spans_of_rollout(store, rollout.rollout_id)) or "  (no recorded call)"


def _shown(rollout: Rollout) -> str:
    return "none" if rollout.reward is None else f"{rollout.reward:g}"


def _short(task: object, limit: int = 80) -> str:
    text = json.dumps(task, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
