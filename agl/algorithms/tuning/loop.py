"""The loop that SFT and DPO share: rounds of sampling, choosing and learning, with held-out rollouts between.

Everything random follows from the seed, the round and the step, and rollouts carry ids made of them. So a resumed run
finds the rollouts of its rounds in the store, chooses the very same examples, and samples only what is missing.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean

from agl.algorithms.base import RunContext, RunResult
from agl.algorithms.checkpoints import (
    FOLDER,
    LoopState,
    checkpoint_to_resume,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from agl.algorithms.held_out import evaluate_policy, metrics_of_evaluations
from agl.algorithms.limits import Limits
from agl.algorithms.preflight import preflight
from agl.algorithms.sampling import (
    Batch,
    GroupRequest,
    bad_ones_run_again,
    check_bad_fraction,
    sample_groups,
)
from agl.algorithms.tuning.examples import Example, examples_of_batch
from agl.algorithms.tuning.past_runs import examples_of_stores
from agl.algorithms.tuning.settings import TuningSettings
from agl.data import tasks_of_iteration
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.waiting import WaitedFor
from agl.learners.base import Learner, ReadsChats
from agl.metrics.base import Progress
from agl.store.opening import store_to_read
from agl.types import Loss, TrainingSample

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a round teaches.

    Args:
        units: samples that belong to one example, or to one pair.
        metrics: how many there are, and what was left out, by cause.
    """

    units: list[list[TrainingSample]]
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TuningAlgorithm(TuningSettings, ABC):
    """The loop with these settings; a subclass says what is learned from a round, and with which loss."""

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Refuse parts that cannot train the policy with this loss."""
        self.moved_by(learner, trainable=trainable).check(self.loss(), needs_values=False)
        if self.stores and self.store_tokens == "template" and not isinstance(learner, ReadsChats):
            raise ConfigError(
                "store_tokens=template needs a learner that knows the policy's chat template: learner=torch"
            )
        for place in self.stores:
            try:
                store_to_read(place, token=self.store_token)
            except ConfigError as error:
                raise ConfigError(f"algorithm.stores: {error}") from error

    @abstractmethod
    def loss(self) -> Loss:
        """The loss that the learner minimises."""

    @abstractmethod
    def lesson(self, given: Sequence[Example], rounds: Sequence[Sequence[Example]]) -> Lesson:
        """Choose what is learned in a round, from what was given and what was sampled in it and the rounds before.

        Raises:
            RunStoppedError: there is nothing to learn; the message says why.
        """

    async def given(self, context: RunContext, learner: Learner) -> tuple[list[Example], Counter[str]]:
        """Return what there is to learn from before anything is sampled, and what could not be read, by cause."""
        return await examples_of_stores(self, context.adapter, learner)

    async def run(self, context: RunContext) -> RunResult:
        """Improve the policy on the given data and on its own rollouts of the training tasks."""
        self.check(context.learner, trainable=context.policy.trainable)
        learner = self.moved_by(context.learner, trainable=context.policy.trainable)
        limits = Limits(context, self.budget)
        return await _Loop(settings=self, context=context, learner=learner, limits=limits).run()


@dataclass(kw_only=True)
class _Loop:
    """One run of the loop over one context."""

    settings: TuningAlgorithm
    context: RunContext
    learner: Learner
    limits: Limits
    state: LoopState = field(default_factory=LoopState)
    rounds: list[list[Example]] = field(default_factory=list[list[Example]])
    total_steps: int = 0
    lap_began_at: float = 0.0
    ended: str | None = None

    async def run(self) -> RunResult:
        context, settings = self.context, self.settings
        saved = checkpoint_to_resume(self._checkpoint_folder, resume=context.resume)
        given = await self._given()
        if settings.num_samples:
            await preflight(
                context,
                sampling=settings.train_sampling(),
                config=settings.rollout_config(),
                on_wait=lambda waited: self._progress("preflight", waited),
            )
        before = await self._evaluate(0)
        if context.resume and saved is None:
            context.metrics.rewind(-1)
        if saved is None:
            await self._report(0, metrics_of_evaluations(before))
        else:
            self.state = await load_checkpoint(saved, self.learner)
            context.metrics.rewind(self.state.iteration)
            await context.policy.load(await self.learner.weights())
            context.metrics.note(f"resumed behind step {self.state.iteration} in round {self.state.round}")
        after: list[Evaluation] = []
        self.lap_began_at = time.monotonic()
        for number in range(1, settings.rounds + 1):
            if self.ended is None:
                after = await self._round(number, given) or after
        if not after:  # resumed behind the last step
            after = await self._evaluate(self.state.iteration)
        self.limits.write()
        policy_dir = context.run_dir / "policy"
        self._progress("saving")
        await self.learner.save_policy(policy_dir)
        self._progress("done")
        return RunResult(
            before=before,
            after=after,
            counts=self.state.counts,
            iterations=self.state.iteration,
            policy_dir=policy_dir,
            checkpoint_dir=newest_checkpoint(self._checkpoint_folder),
            further=self.limits.more or self._further(),
        )

    def _further(self) -> str:
        """The setting with which a finished run trains on."""
        settings = self.settings
        return f"rounds={2 * settings.rounds}" if settings.num_samples else f"epochs={2 * settings.epochs}"

    @property
    def _checkpoint_folder(self) -> Path:
        return self.context.run_dir / FOLDER

    async def _given(self) -> list[Example]:
        """What there is to learn from before anything is sampled.

        Raises:
            RunStoppedError: nothing of it can be used, and nothing is sampled.
        """
        given, unread = await self.settings.given(self.context, self.learner)
        causes = ", ".join(f"{count} {cause}" for cause, count in sorted(unread.items()))
        if self.settings.has_data:
            left_out = f"; left out: {causes}" if causes else ""
            self.context.metrics.note(f"given: {len(given)} examples{left_out}")
        if not given and not self.settings.num_samples:
            raise RunStoppedError(
                "nothing of what was given can be learned from, and nothing is sampled (algorithm.group_size=0):"
                f" {causes or 'there are no training rollouts in it'}"
            )
        return given

    async def _round(self, number: int, given: Sequence[Example]) -> list[Evaluation]:
        """Sample, choose and learn; a round that lies behind the checkpoint is only read again, for later ones."""
        settings = self.settings
        if number < self.state.round and not settings.looks_back:
            self.rounds.append([])
            return []
        if (
            number > self.state.round
            and settings.num_samples
            and (reason := await self._reason_to_end(number))
        ):
            self._end(reason)
            return []
        sampled = await self._sample(number) if settings.num_samples else None
        self.rounds.append(sampled[1] if sampled else [])
        if number < self.state.round:
            return []
        lesson = settings.lesson(given, self.rounds)
        values: dict[str, float] = {}  # of the round, for its first report
        if self.state.round < number:
            values = {f"round/{name}": value for name, value in lesson.metrics.items()}
            counts = self.state.counts + (sampled[0].counts if sampled else RolloutCounts())
            self.state = replace(self.state, round=number, steps_in_round=0, counts=counts)
            if sampled:
                values |= _metrics_of_batch(sampled[0])
        plan = minibatches_of(
            lesson.units, settings.minibatch_size, settings.epochs, seed=f"{self.context.seed}/{number}"
        )
        self.total_steps = self.state.iteration + (len(plan) - self.state.steps_in_round)
        self.total_steps += (settings.rounds - number) * len(plan)
        return await self._learn(number, plan, values)

    async def _learn(
        self, number: int, plan: Sequence[list[TrainingSample]], values: dict[str, float]
    ) -> list[Evaluation]:
        """Take the steps of a round that are still to be taken; return the evaluation behind the last."""
        settings, evaluations = self.settings, list[Evaluation]()
        window: list[Mapping[str, float]] = []
        for place in range(self.state.steps_in_round, len(plan)):
            self._progress("learning")
            done = (number - 1 + place / len(plan)) / settings.rounds
            report = await self.learner.update(plan[place], replace(settings.loss(), progress=done))
            window.append(report.metrics)
            step, reason = self.state.iteration + 1, await self.limits.reached()
            last = place + 1 == len(plan) or reason is not None
            self.state = replace(self.state, iteration=step, steps_in_round=place + 1)
            evaluated = last or (settings.evaluate_every > 0 and step % settings.evaluate_every == 0)
            if evaluated:
                await self.context.policy.load(await self.learner.weights())
                evaluations = await self._evaluate(step)
            self._count_time()
            if evaluated or step % settings.report_every == 0:
                await self._report(
                    step, values | self._window_metrics(window) | metrics_of_evaluations(evaluations)
                )
                window, values, evaluations = [], {}, evaluations if last else []
            if last or step % settings.save_every == 0:
                self._progress("saving")
                await save_checkpoint(
                    self._checkpoint_folder, self.state, self.learner, keep=settings.keep_checkpoints
                )
            if reason is not None:
                self._end(reason)
                break
        return evaluations

    async def _reason_to_end(self, number: int) -> str | None:
        """Why the rollouts of a round should not be asked for; None where they may."""
        return await self.limits.reached(
            self._tasks_per_round * self.settings.num_samples, prefix=f"{self.context.prefix}-r{number}-"
        )

    def _end(self, reason: str) -> None:
        self.ended = reason
        self.context.metrics.note(f"ends behind step {self.state.iteration}: {reason}")

    @property
    def _tasks_per_round(self) -> int:
        return self.settings.tasks_per_round or len(self.context.train_tasks)

    def _count_time(self) -> None:
        now = time.monotonic()
        elapsed = self.state.elapsed_seconds + now - self.lap_began_at
        self.state, self.lap_began_at = replace(self.state, elapsed_seconds=elapsed), now

    def _window_metrics(self, window: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Means over the steps since the last report."""
        names = {name: None for metrics in window for name in metrics}
        means = {
            f"update/{name}": fmean(metrics[name] for metrics in window if name in metrics) for name in names
        }
        return means | {
            "policy/version": float(self.learner.policy_version),
            "round/number": float(self.state.round),
            "time/elapsed_seconds": self.state.elapsed_seconds,
            **{f"total/{name}": value for name, value in self.state.counts.metrics().items()},
        }

    async def _report(self, step: int, values: dict[str, float]) -> None:
        await self.context.report(step, values)

    async def _sample(self, number: int) -> tuple[Batch, list[Example]]:
        context, settings = self.context, self.settings
        places = tasks_of_iteration(
            len(context.train_tasks),
            self._tasks_per_round,
            number,
            seed=context.seed,
        )
        groups = [
            GroupRequest(
                group_id=f"{context.prefix}-r{number}-g{position}", task=context.train_tasks[chosen.index]
            )
            for position, chosen in enumerate(places)
        ]
        batch, rollouts = await sample_groups(
            context.store,
            context.adapter,
            groups,
            group_size=settings.num_samples,
            run_id=context.run_id,
            resources_id=await context.policy.resources_id("train", settings.train_sampling()),
            seed=context.seed,
            sampling=settings.train_sampling(),
            config=settings.rollout_config(),
            on_wait=lambda waited: self._progress("sampling", waited),
        )
        async with bad_ones_run_again(context.store, batch, rollouts):
            check_bad_fraction(batch, rollouts, max_bad_fraction=settings.max_bad_fraction)
        return batch, examples_of_batch(batch, {group.group_id: group.task for group in groups})

    async def _evaluate(self, step: int) -> list[Evaluation]:
        return await evaluate_policy(
            self.context,
            self.settings.evaluations(),
            step=step,
            config=self.settings.rollout_config(),
            on_wait=lambda waited: self._progress("evaluating", waited),
        )

    def _progress(self, phase: str, waited: WaitedFor | None = None) -> None:
        self.context.metrics.progress(
            Progress(
                phase=phase,
                iteration=self.state.iteration,
                total_iterations=max(self.total_steps, self.state.iteration),
                done=waited.done if waited else 0,
                total=waited.total if waited else 0,
                waiting_for=waited.words if waited else None,
            )
        )


def minibatches_of(
    units: Sequence[list[TrainingSample]], size: int, epochs: int, *, seed: str
) -> list[list[TrainingSample]]:
    """Return the samples of each optimizer step: every pass in an order of its own, cut into at most ``size``."""
    steps: list[list[TrainingSample]] = []
    for epoch in range(epochs):
        order = list(units)
        Random(f"{seed}/{epoch}").shuffle(order)
        count = -(-len(order) // size)
        borders = [len(order) * index // count for index in range(count + 1)]
        steps += [
            [sample for unit in order[start:end] for sample in unit] for start, end in pairwise(borders)
        ]
    return steps


def _metrics_of_batch(batch: Batch) -> dict[str, float]:
    values = batch.counts.metrics()
    values |= {f"samples/dropped/{cause}": float(count) for cause, count in sorted(batch.dropped.items())}
    if batch.rollouts:
        values["train/reward"] = fmean(rollout.reward for rollout in batch.rollouts)
    return values
