"""Ladder: one algorithm after another on one budget: better prompts first, then good runs, then reinforcement.

What is cheap goes first. A stage hands on what it found: prompts to the agents of the next ones, weights in the
learner. The validation tasks are run between the stages, under the same settings each time, and by no stage.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agl.algorithms.base import Algorithm, RunContext, RunResult
from agl.algorithms.prompts.spending import Budget, Spent
from agl.algorithms.retries import RetrySettings
from agl.algorithms.sampling import rollout_seed
from agl.algorithms.serving import ServedPolicy
from agl.algorithms.stages.ledger import Ledger
from agl.algorithms.stages.record import LEARNER, StageRecord, load_record, save_record
from agl.algorithms.stages.shifted import ShiftedMetrics
from agl.errors import ConfigError
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.evaluate import Evaluation, evaluate
from agl.learners.base import Learner
from agl.metrics.base import Progress
from agl.metrics.logger import MetricLogger
from agl.types import PromptTemplate, Resource

START = "start"
FOLDER = "stages"


@dataclass(frozen=True, kw_only=True)
class Ladder(RetrySettings):
    """Runs algorithms as stages. Limits of a rollout on the validation tasks are in ``RetrySettings``.

    Args:
        stages: algorithms by name, in order.
        budget: of all stages together, evaluations between them but for their minutes left out; null is none. Whatever
            is under way when it is spent ends with its step, and the next stages do not begin.
        shares: the part of the budget, from 0 to 1, that a stage may take; those without one may take all that is left.
        max_tokens: longest answer of a call on the validation tasks.
        temperatures: one evaluation each.
        sampling: further request parameters of these calls.
        evaluate_repeats: rollouts of each validation task.
    """

    stages: dict[str, Algorithm]
    budget: Budget | None = None
    shares: dict[str, float] = field(default_factory=dict[str, float])
    max_tokens: int = 1024
    temperatures: list[float] = field(default_factory=lambda: [1.0, 0.0])
    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    evaluate_repeats: int = 1

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        if not self.stages:
            raise ConfigError("stages: there are none")
        for name in self.stages:
            if not re.fullmatch(r"[A-Za-z]\w*", name) or name == START:
                raise ConfigError(f"stages.{name}: a stage's name is letters, digits and _, and not {START}")
        self._check_shares()
        for name in ("max_tokens", "evaluate_repeats"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if not self.temperatures or min(self.temperatures) < 0:
            raise ConfigError(f"temperatures={self.temperatures} must name at least one, none below 0")

    def _check_shares(self) -> None:
        for name, share in self.shares.items():
            if name not in self.stages:
                raise ConfigError(f"shares.{name} is no stage; there are {', '.join(self.stages)}")
            if not 0 < share <= 1:
                raise ConfigError(f"shares.{name}={share} must be above 0 and at most 1")
        if self.shares and self.budget is None:
            raise ConfigError("shares are parts of a budget: set budget, too")

    @property
    def needs_learner(self) -> bool:
        """Whether a stage moves weights."""
        return any(algorithm.needs_learner for algorithm in self.stages.values())

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Refuse parts that a stage cannot work with."""
        for name, algorithm in self.stages.items():
            try:
                algorithm.check(learner, trainable=trainable)
            except ConfigError as error:
                raise ConfigError(f"stages.{name}: {error}") from error

    async def run(self, context: RunContext) -> RunResult:
        """Climb; a stage that has finished is not run again."""
        return await _Climb(settings=self, context=context, resources=dict(context.resources)).run()

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Request parameters of each evaluation, by metric name."""
        base = {"top_p": 1.0, **self.sampling, "max_tokens": self.max_tokens}
        names = {0.0: "val/reward_greedy", 1.0: "val/reward"}
        return {names.get(t, f"val/reward_t{t:g}"): {**base, "temperature": t} for t in self.temperatures}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A line of the table: where the ladder stands behind a stage.

    Args:
        name: of the stage.
        spent: what it took; None at the start.
        evaluations: of what it left.
    """

    name: str
    spent: Spent | None
    evaluations: Sequence[Evaluation]


@dataclass(kw_only=True)
class _Climb:
    """One run of the ladder.

    Args:
        resources: what agents get beside the model, as the finished stages left it.
    """

    settings: Ladder
    context: RunContext
    resources: dict[str, Resource]
    rungs: list[Rung] = field(default_factory=list[Rung])
    counts: RolloutCounts = field(default_factory=RolloutCounts)
    notes: list[str] = field(default_factory=list[str])
    policy_dir: Path | None = None
    prompts_dir: Path | None = None
    next_step: int = 0

    async def run(self) -> RunResult:
        finished = {name: load_record(self._folder(name)) for name in self.settings.stages}
        first = await self._rung(START, None, is_new=not self._is_begun(next(iter(finished))))
        last_moved = [name for name, record in finished.items() if record and record.moved_weights][-1:]
        left = list(self.settings.stages)
        while left:
            name = left.pop(0)
            record, is_new = finished[name], not left or not self._is_begun(left[0])
            if record is None:
                reason = _over(self.settings.budget, self.spent)
                if reason is not None:
                    self.notes.append(f"{', '.join([name, *left])}: not begun: {reason}")
                    break
                record = await self._climbed(name, self.settings.stages[name])
            elif [name] == last_moved:
                await self._load(name)
            self._take(name, record)
            await self._rung(name, record.spent, is_new=is_new)
        self.context.metrics.progress(Progress(phase="done"))
        first_prompts = _prompts_in(self.context.resources)
        prompts = _prompts_in(self.resources)
        return RunResult(
            before=list(first.evaluations),
            after=list(self.rungs[-1].evaluations),
            counts=self.counts,
            policy_dir=self.policy_dir,
            prompts=prompts if self.prompts_dir else {},
            first_prompts=first_prompts,
            prompts_dir=self.prompts_dir,
            diagnosis=self.notes,
            table=table_of(self.rungs),
        )

    @property
    def spent(self) -> Spent:
        """What the finished stages took."""
        return sum((rung.spent for rung in self.rungs if rung.spent is not None), Spent())

    def _folder(self, name: str) -> Path:
        return self.context.run_dir / FOLDER / name

    def _is_begun(self, name: str) -> bool:
        """Whether an earlier process began the stage: then what lies before it was reported."""
        return self.context.resume and self._folder(name).is_dir()

    async def _climbed(self, name: str, algorithm: Algorithm) -> StageRecord:
        """Run a stage to its end, and write down what it leaves."""
        context, folder = self.context, self._folder(name)
        shifted = ShiftedMetrics(context.metrics, stage=name, first_step=self.next_step)
        is_begun = self._is_begun(name)
        folder.mkdir(parents=True, exist_ok=True)
        stage = replace(
            context,
            stage=name,
            first_step=self.next_step,
            run_dir=folder,
            resume=is_begun,
            val_tasks=(),
            policy=context.policy.of_stage(name, self.resources),
            metrics=MetricLogger([shifted]),
            resources=self.resources,
        )
        ledger = Ledger(context.store, run_id=context.run_id, prefix=stage.prefix, file=folder / "time.json")
        stage = replace(stage, ends_now=self._end_of(name, ledger))
        context.metrics.note(f"{name} begins")
        result = await algorithm.run(stage)
        spent = await ledger.spent(with_calls=True)
        ledger.write()
        record = StageRecord(
            spent=spent,
            last_step=shifted.last_step,
            counts=result.counts,
            prompts=dict(result.prompts),
            moved_weights=algorithm.needs_learner,
            policy_dir=result.policy_dir,
            notes=tuple(result.diagnosis),
        )
        await save_record(folder, record, context.learner)
        return record

    def _end_of(self, name: str, ledger: Ledger) -> Callable[[], Awaitable[str | None]]:
        """What a stage asks between its steps: why it should end."""
        budget, before, share = self.settings.budget, self.spent, self.settings.shares.get(name, 1.0)

        async def ends_now() -> str | None:
            here = await ledger.spent(with_calls=budget is not None and budget.counts_calls)
            return _over(budget, before + here) or _over(budget, here, share=share)

        return ends_now

    async def _load(self, name: str) -> None:
        """Go on from the weights that a finished stage left."""
        assert self.context.learner is not None
        await self.context.learner.load(self._folder(name) / LEARNER)
        await self.context.policy.load(await self.context.learner.weights())

    def _take(self, name: str, record: StageRecord) -> None:
        self.resources.update(record.prompts)
        self.counts += record.counts
        self.notes += [f"{name}: {note}" for note in record.notes]
        self.next_step = record.last_step + 1
        if any(prompt.version > 1 for prompt in record.prompts.values()):
            self.prompts_dir = self._folder(name) / "prompts"
        if record.policy_dir is not None:
            self.policy_dir = record.policy_dir

    async def _rung(self, name: str, spent: Spent | None, *, is_new: bool) -> Rung:
        """Evaluate what a stage left, and note it down."""
        policy = self.context.policy.of_stage(f"{name}-val", self.resources)
        rung = Rung(name=name, spent=spent, evaluations=await self._evaluate(name, policy))
        self.rungs.append(rung)
        if is_new:
            means = {one.name: one.reward.mean for one in rung.evaluations}
            if self.context.resume:
                self.context.metrics.rewind(self.next_step - 1)
            values = {metric: mean for metric, mean in means.items() if mean is not None}
            values |= {"ladder/rollouts": self.spent.rollouts, "ladder/tokens": self.spent.tokens}
            values["ladder/minutes"] = self.spent.seconds / 60
            await self.context.report(self.next_step, values)
        self.next_step += 1
        return rung

    async def _evaluate(self, place: str, policy: ServedPolicy) -> list[Evaluation]:
        context, results = self.context, list[Evaluation]()
        for name, sampling in self.settings.evaluations().items() if context.val_tasks else ():
            label = name.removeprefix("val/")
            results.append(
                await evaluate(
                    context.store,
                    context.val_tasks,
                    name=name,
                    id_prefix=f"{context.prefix}-{place}-val-{label}",
                    resources_id=await policy.resources_id(f"val-{label}", sampling),
                    seed=rollout_seed(context.seed, f"val-{label}"),
                    sampling=sampling,
                    run_id=context.run_id,
                    repeats=self.settings.evaluate_repeats,
                    config=self.settings.rollout_config(),
                    on_wait=lambda waited: context.metrics.progress(
                        Progress(
                            phase="evaluating",
                            done=waited.done,
                            total=waited.total,
                            waiting_for=waited.words,
                        )
                    ),
                )
            )
        return results


def table_of(rungs: Sequence[Rung]) -> list[str]:
    """Return one line a stage: what it took, and the held-out reward behind it with its 95% interval."""
    names = [one.name.removeprefix("val/") for one in rungs[0].evaluations]
    labels = [name.replace("reward_greedy", "greedy").replace("reward", "sampled") for name in names]
    head = ["stage", "rollouts", "tokens", "minutes", "cost", *(f"held-out, {label}" for label in labels)]
    rows = [
        [rung.name, *_taken(rung.spent), *(str(one.reward) for one in rung.evaluations)] for rung in rungs
    ]
    total = sum((rung.spent for rung in rungs if rung.spent is not None), Spent())
    rows.append(["all", *_taken(total), *("" for _ in labels)])
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    return ["", "Ladder", *(f"  {_line(row, widths)}".rstrip() for row in [head, *rows])]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """The cells side by side; numbers to the right."""
    cells = [
        cell.rjust(width) if 1 <= place <= 4 else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells)


def _taken(spent: Spent | None) -> list[str]:
    if spent is None:
        return ["", "", "", ""]
    cost = (
        f"${spent.cost_usd:.4f}" if spent.unpriced_calls < spent.calls else "unknown" if spent.calls else "$0"
    )
    return [f"{spent.rollouts:,}", f"{spent.tokens:,}", f"{spent.seconds / 60:.1f}", cost]


def _over(budget: Budget | None, spent: Spent, *, share: float = 1.0) -> str | None:
    """Which limit, or part of one, is reached by this; None where none is.

    Raises:
        RunStoppedError: there is a limit of cost, and calls whose price nobody knows.
    """
    if budget is None:
        return None
    budget.check_prices(spent)
    taken = {
        "max_rollouts": (spent.rollouts, budget.max_rollouts),
        "max_calls": (spent.calls, budget.max_calls),
        "max_tokens": (spent.tokens, budget.max_tokens),
        "max_cost": (spent.cost_usd, budget.max_cost),
        "max_minutes": (spent.seconds / 60, budget.max_minutes),
    }
    part = f" times its share {share:g}" if share < 1 else ""
    return next(
        (
            f"budget.{name}={limit:g}{part} is spent"
            for name, (value, limit) in taken.items()
            if limit is not None and value >= share * limit
        ),
        None,
    )


def _prompts_in(resources: Mapping[str, Resource]) -> dict[str, PromptTemplate]:
    return {name: value for name, value in resources.items() if isinstance(value, PromptTemplate)}
