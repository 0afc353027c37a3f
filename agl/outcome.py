"""Outcome: what a finished run tells its user: before and after, sample transcripts, where things are, what to do
next.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agl.adapters.transcript import transcript
from agl.algorithms.base import RunResult
from agl.algorithms.prompts.archive import best_file
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.rollouts import spans_of_rollout
from agl.store.base import LightningStore
from agl.types import Rollout

NUM_TRANSCRIPTS = 3
SETTINGS_FILE = "settings.yaml"
"""In the folder of a run that the command line began, and can go on with."""
NO_RECIPE = "train"
"""The name of a run whose settings name no recipe; a recipe gives a run its own name."""


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

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the closing report, a line an item."""
        return [
            *self._results(),
            *self.result.table,
            *self._prompts(),
            *self._samples(),
            *self._places(),
            *self._next(),
        ]

    def _results(self) -> list[str]:
        result = self.result
        if not result.after:
            return ["Held-out reward: not measured, the data has no validation tasks", *self._counters()]
        lines = ["Held-out reward (95% interval)"]
        for before, after in zip(result.before, result.after, strict=True):
            name = before.name.removeprefix("val/")
            label = name.replace("reward_greedy", "greedy").replace("reward", "sampled")
            change = f"before {before.reward}   after {after.reward}" if after is not before else after.reward
            lines.append(f"  {label:8} {change}   {after.reward.num_tasks} tasks")
            for when, one in {"before": before, "after": after}.items():
                if one.counts.bad and (one is after or one is not before):
                    lines.append(
                        f"           {when}: {one.counts.bad} of {one.counts.enqueued} rollouts gave no reward:"
                        " not in the mean"
                    )
        return [*lines, *self._counters()]

    def _counters(self) -> list[str]:
        counts = self.result.counts
        failed = ", ".join(f"{cause} {count}" for cause, count in counts.failed.most_common()) or "0"
        late = f" ({counts.stragglers} of them stragglers)" if counts.stragglers else ""
        line = (
            f"{'Training rollouts' if self.result.policy_dir else 'Rollouts'}: {counts.enqueued} enqueued"
            f" = {counts.succeeded} succeeded + {counts.failed.total()} failed + {counts.cancelled} cancelled{late};"
            f" failed by cause: {failed}; without reward: {counts.without_reward};"
            f" without calls: {counts.without_calls}; without a sample to learn from: {counts.untrainable}"
        )
        return [line, *(f"Note: {note}" for note in self.result.diagnosis)]

    def _prompts(self) -> list[str]:
        """What changed in each prompt, from the first to the chosen one."""
        lines: list[str] = []
        for name, prompt in self.result.prompts.items():
            first = self.result.first_prompts.get(name, prompt)
            changes = first.diff(prompt).splitlines()
            lines += ["", f"Prompt {name}: " + ("changed" if changes else "no better one was found")]
            lines += [f"  {_plain(line)}" for line in changes]
        return lines

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
            adapter = _is_adapter(self.result.policy_dir)
            what = "a LoRA adapter of a remote model" if adapter else "an ordinary Hugging Face folder"
            lines.append(f"Policy       {self.result.policy_dir} ({what})")
        if self.result.checkpoint_dir:
            lines.append(f"Checkpoint   {self.result.checkpoint_dir}")
        if self.result.prompts_dir:
            lines.append(
                f"Prompts      {self.result.prompts_dir} (best/: the chosen ones; candidates.jsonl: all, with scores)"
            )
        return [*lines, f"Metrics      {self.run_dir / 'metrics.jsonl'}"]

    def _next(self) -> list[str]:
        """How to go on with this run, and how to begin another from what it found."""
        policy, result = self.result.policy_dir, self.result
        files = (
            {name: best_file(result.prompts_dir, name, prompt) for name, prompt in result.prompts.items()}
            if result.prompts_dir
            else {}
        )
        if policy and _is_adapter(policy):
            return self._next_of_adapter()
        found = " and ".join([*(["this policy"] if policy else []), *(["these prompts"] if files else [])])
        if not found:
            return []
        if not (self.run_dir / SETTINGS_FILE).is_file():
            return self._next_in_python(found, files)
        further = result.further or (
            f"iterations={2 * result.iterations}" if policy and result.iterations else ""
        )
        on = f"  agl train --resume {shlex.quote(str(self.run_dir))} algorithm.{further}"
        recipe = "" if self.name == NO_RECIPE else f"+recipe={self.name} "
        chosen = [_override("policy.path", policy)] if policy else []
        chosen += [
            shlex.quote(f"resources.{name}.template=${{file:{_escaped(path)}}}")
            for name, path in files.items()
        ]
        return [
            "",
            *([f"Next: {'train' if policy else 'search'} on", on] if further else []),
            f"Next: start another run from {found}"
            + ("" if recipe else ", with these further settings of yours"),
            f"  agl train {recipe}{' '.join(chosen)}",
        ]

    def _next_of_adapter(self) -> list[str]:
        """How to go on with a run whose policy is no model here to begin another from."""
        on = "  the same Trainer with more algorithm iterations, and fit(resume=True)"
        if (self.run_dir / SETTINGS_FILE).is_file():
            further = self.result.further or f"iterations={2 * self.result.iterations}"
            on = f"  agl train --resume {shlex.quote(str(self.run_dir))} algorithm.{further}"
        return ["", "Next: train on", on]

    def _next_in_python(self, found: str, files: Mapping[str, Path]) -> list[str]:
        """The same for a run that a script began."""
        policy, on = self.result.policy_dir, list[str]()
        if policy and (self.result.iterations or self.result.further):
            on = [
                "Next: train on",
                "  the same Trainer with more algorithm iterations, and fit(resume=True)",
            ]
        prompts = ", ".join(f"{name!r}: PromptTemplate(template=...)" for name in files)
        given = [f"policy=Policy(path={str(policy)!r})"] if policy else []
        given += [f"resources={{{prompts}}}"] if files else []
        words = f"Trainer({', '.join(given)}, ...)" if files else given[0]
        return ["", *on, f"Next: start another run from {found}", f"  {words}"]


def _is_adapter(folder: Path) -> bool:
    """Whether the policy's folder is no model to begin with: a service keeps that, and gave out what it learned."""
    return (folder / "tinker.json").is_file()


def _plain(line: str) -> str:
    """The line with nothing in it that a terminal would obey: models write prompts."""
    return "".join(sign if sign.isprintable() else " " if sign == "\t" else "�" for sign in line)


def _escaped(path: Path) -> str:
    """A path as an argument of a resolver in Hydra's grammar."""
    return re.sub(r"([\\,()\[\]{}:=\s])", r"\\\1", str(path))


def _override(name: str, path: Path) -> str:
    """``name=path`` as the shell and Hydra's grammar read it."""
    if re.fullmatch(r"[\w./-]+", str(path), re.ASCII):
        return f"{name}={path}"
    quoted = str(path).replace("'", r"\'")
    return shlex.quote(f"{name}='{quoted}'")


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
