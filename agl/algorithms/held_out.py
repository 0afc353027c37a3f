"""The served policy on the validation tasks, as the loops that move weights measure it between their updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agl.algorithms.base import RunContext
from agl.algorithms.sampling import rollout_seed
from agl.evaluation.evaluate import Evaluation, evaluate
from agl.evaluation.waiting import WaitedFor
from agl.types import RolloutConfig


async def evaluate_policy(
    context: RunContext,
    named: Mapping[str, Mapping[str, Any]],
    *,
    step: int,
    config: RolloutConfig,
    on_wait: Callable[[WaitedFor], None],
) -> list[Evaluation]:
    """Return one evaluation for each name, none where there are no validation tasks.

    Ids and seeds follow from the step and the name, so that a repeated evaluation is answered from the store.

    Args:
        context: the run's parts.
        named: request parameters of every call, by the evaluation's name (``val/reward``).
        step: how many iterations or optimizer steps lie behind the policy.
        config: limits of each rollout.
        on_wait: told what is waited for.
    """
    results: list[Evaluation] = []
    for name, sampling in named.items() if context.val_tasks else ():
        label = name.removeprefix("val/")
        prefix = f"{context.prefix}-e{step}-{label}"
        results.append(
            await evaluate(
                context.store,
                context.val_tasks,
                name=name,
                id_prefix=prefix,
                resources_id=await context.policy.resources_id(f"val-{label}", sampling),
                seed=rollout_seed(context.seed, prefix.removeprefix(context.run_id)),
                sampling=sampling,
                run_id=context.run_id,
                config=config,
                on_wait=on_wait,
            )
        )
    return results


def metrics_of_evaluations(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Return means by metric name, and how many rollouts gave no reward where some did not."""
    values: dict[str, float] = {}
    for evaluation in evaluations:
        if evaluation.reward.mean is not None:
            values[evaluation.name] = evaluation.reward.mean
        if evaluation.counts.bad:
            values[f"{evaluation.name}_without_result"] = float(evaluation.counts.bad)
    return values
