"""The on-policy loop that PPO and GRPO share: sample, give credit, update, publish, evaluate, save.

Everything random follows from the seed and the iteration, and rollouts carry ids made from both. So a resumed run
finds the rollouts of its unfinished iterations in the store, learns from the very same tokens, and samples only
what is missing.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
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
from agl.algorithms.diagnosis import diagnose
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
from agl.algorithms.settings import OnPolicySettings
from agl.data import tasks_of_iteration
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.waiting import WaitedFor
from agl.learners.base import Learner
from agl.metrics.base import Progress
from agl.types import PolicyLoss, TrainingSample, UpdateReport

log = logging.getLogger(__name__)
LOGPROB_GAP_WARNING = 1e-2
"""Engine and learner disagree on the sampled tokens by more than kernels explain (bfloat16 differs by some 1e-3)."""


@dataclass(frozen=True, kw_only=True)
class OnPolicyAlgorithm(OnPolicySettings, ABC):
    """The loop with these settings; a subclass says how credit is given."""

    @property
    def needs_values(self) -> bool:
        """Whether ``credit`` asks the learner for values."""
        return False

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Refuse parts that cannot train the policy with this loss."""
        self.moved_by(learner, trainable=trainable).check(self.loss(), needs_values=self.needs_values)

    @abstractmethod
    async def credit(self, batch: Batch, learner: Learner) -> tuple[list[TrainingSample], dict[str, float]]:
        """Turn the usable rollouts of an iteration into samples; also return what to report about it."""

    def loss(self) -> PolicyLoss:
        """The loss that the learner minimises."""
        return PolicyLoss(
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            kl_coef=self.kl_coef,
            entropy_coef=self.entropy_coef,
            epochs=self.epochs,
            minibatch_rollouts=self.minibatch_rollouts,
        )

    async def run(self, context: RunContext) -> RunResult:
        """Improve the policy on the training tasks."""
        self.check(context.learner, trainable=context.policy.trainable)
        learner = self.moved_by(context.learner, trainable=context.policy.trainable)
        limits = Limits(context, self.budget)
        return await _Loop(settings=self, context=context, learner=learner, limits=limits).run()


@dataclass(kw_only=True)
class _Loop:
    """One run of the loop over one context."""

    settings: OnPolicyAlgorithm
    context: RunContext
    learner: Learner
    limits: Limits
    state: LoopState = field(default_factory=LoopState)
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    async def run(self) -> RunResult:
        context, settings = self.context, self.settings
        saved = checkpoint_to_resume(self._checkpoint_folder, resume=context.resume)
        await preflight(
            context,
            sampling=settings.train_sampling(),
            config=settings.rollout_config(),
            on_wait=lambda waited: self._progress("preflight", 0, waited),
        )
        before = await self._evaluate(0)
        if context.resume:
            context.metrics.rewind(_iteration_of(saved))
        if saved is None:
            await self._report(0, metrics_of_evaluations(before))
        else:
            self.state = await load_checkpoint(saved, self.learner)
            await context.policy.load(await self.learner.weights())
            context.metrics.note(f"resumed behind iteration {self.state.iteration}")
        after: list[Evaluation] = []
        while self.state.iteration < settings.iterations:
            if reason := await self._reason_to_end():
                context.metrics.note(f"ends behind iteration {self.state.iteration}: {reason}")
                if self.state.iteration:
                    await self._save()
                break
            after = await self._iterate(self.state.iteration + 1)
        self.limits.write()
        if not after:  # resumed behind the last iteration, or ended early
            after = await self._evaluate(self.state.iteration)
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
            further=self.limits.more,
            diagnosis=diagnose(self.history),
        )

    @property
    def _checkpoint_folder(self) -> Path:
        return self.context.run_dir / FOLDER

    async def _iterate(self, iteration: int) -> list[Evaluation]:
        """One cycle; returns its evaluations, if it had any."""
        context, settings = self.context, self.settings
        begun = time.monotonic()
        batch = await self._sample(iteration)
        sampled = time.monotonic()
        self._progress("learning", iteration)
        samples, credit_metrics = await settings.credit(batch, self.learner)
        loss = replace(settings.loss(), progress=(iteration - 1) / settings.iterations)
        report = await self.learner.update(samples, loss)
        if samples:
            await context.policy.load(await self.learner.weights())
        updated = time.monotonic()
        self._warn_of_gap(report)
        evaluations = await self._evaluate(iteration) if self._evaluated(iteration) else []
        ended = time.monotonic()
        self.state = replace(
            self.state,
            iteration=iteration,
            counts=self.state.counts + batch.counts,
            elapsed_seconds=self.state.elapsed_seconds + ended - begun,
        )
        values = _metrics_of_batch(batch, samples, self.state.counts)
        values |= credit_metrics | {f"update/{name}": value for name, value in report.metrics.items()}
        values |= {
            "update/optimizer_steps": float(report.optimizer_steps),
            "policy/version": float(self.learner.policy_version),
            "time/sample_seconds": sampled - begun,
            "time/update_seconds": updated - sampled,
            "time/eval_seconds": ended - updated,
            "time/iteration_seconds": ended - begun,
            "time/elapsed_seconds": self.state.elapsed_seconds,
            "speed/tokens_per_second": values["samples/tokens"] / max(ended - begun, 1e-9),
        }
        values |= metrics_of_evaluations(evaluations)
        self.history.append(values)
        await self._report(
            iteration, values
        )  # first, so that a resumed run lacks no iteration behind its checkpoint
        if iteration % settings.save_every == 0 or iteration == settings.iterations:
            await self._save()
        return evaluations

    async def _reason_to_end(self) -> str | None:
        """Why the next iteration should not begin; None where it may."""
        settings = self.settings
        return await self.limits.reached(
            settings.tasks_per_iteration * settings.group_size,
            prefix=f"{self.context.prefix}-i{self.state.iteration + 1}-",
        )

    async def _save(self) -> None:
        self._progress("saving")
        await save_checkpoint(
            self._checkpoint_folder, self.state, self.learner, keep=self.settings.keep_checkpoints
        )

    async def _report(self, iteration: int, values: dict[str, float]) -> None:
        await self.context.report(iteration, values)

    async def _sample(self, iteration: int) -> Batch:
        context, settings = self.context, self.settings
        places = tasks_of_iteration(
            len(context.train_tasks), settings.tasks_per_iteration, iteration, seed=context.seed
        )
        groups = [
            GroupRequest(
                group_id=f"{context.prefix}-i{iteration}-g{position}", task=context.train_tasks[chosen.index]
            )
            for position, chosen in enumerate(places)
        ]
        batch, rollouts = await sample_groups(
            context.store,
            context.adapter,
            groups,
            group_size=settings.group_size,
            run_id=context.run_id,
            resources_id=await context.policy.resources_id("train", settings.train_sampling()),
            seed=context.seed,
            sampling=settings.train_sampling(),
            config=settings.rollout_config(),
            rules=settings.group_rules(),
            on_wait=lambda waited: self._progress("sampling", iteration, waited),
        )
        async with bad_ones_run_again(context.store, batch, rollouts):
            check_bad_fraction(batch, rollouts, max_bad_fraction=settings.max_bad_fraction)
        return batch

    def _evaluated(self, iteration: int) -> bool:
        every = self.settings.evaluate_every
        return iteration == self.settings.iterations or (every > 0 and iteration % every == 0)

    async def _evaluate(self, iteration: int) -> list[Evaluation]:
        return await evaluate_policy(
            self.context,
            self.settings.evaluations(),
            step=iteration,
            config=self.settings.rollout_config(),
            on_wait=lambda waited: self._progress("evaluating", iteration, waited),
        )

    def _progress(self, phase: str, iteration: int | None = None, waited: WaitedFor | None = None) -> None:
        self.context.metrics.progress(
            Progress(
                phase=phase,
                iteration=self.state.iteration if iteration is None else iteration,
                total_iterations=self.settings.iterations,
                done=waited.done if waited else 0,
                total=waited.total if waited else 0,
                waiting_for=waited.words if waited else None,
            )
        )

    def _warn_of_gap(self, report: UpdateReport) -> None:
        gap = report.metrics.get("logprob_gap_first", 0.0)
        if gap > LOGPROB_GAP_WARNING:
            log.warning(
                "learner and engine disagree on sampled tokens: logprobs differ by up to %.3g before the update;"
                " check dtype, attention and chat template of policy and engine",
                gap,
            )


def _iteration_of(checkpoint: Path | None) -> int:
    """The iteration that the checkpoint stands behind; -1 without one, before every report."""
    return -1 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def _metrics_of_batch(
    batch: Batch, samples: Sequence[TrainingSample], totals: RolloutCounts
) -> dict[str, float]:
    rollouts = batch.rollouts
    values = batch.counts.metrics() | batch.group_counts.metrics()
    values |= {f"total/{name}": value for name, value in totals.metrics().items()}
    values |= {f"samples/dropped/{cause}": float(count) for cause, count in sorted(batch.dropped.items())}
    values["samples/sequences"] = float(len(samples))
    values["samples/tokens"] = float(sum(rollout.num_sampled_tokens for rollout in rollouts))
    values["samples/calls"] = float(batch.num_calls)
    if rollouts:
        values["train/reward"] = fmean(rollout.reward for rollout in rollouts)
        values["samples/tokens_per_rollout"] = values["samples/tokens"] / len(rollouts)
    return values
