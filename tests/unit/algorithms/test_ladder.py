"""The ladder: stages in order on one budget, each with what the ones before found."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from run_contexts import Notebook, context_of
from sampled_batches import ConstantCritic
from scripted_worker import Script

from agl.algorithms.base import Algorithm, RunContext, RunResult
from agl.algorithms.grpo import GRPO
from agl.algorithms.ladder import Ladder, Rung, table_of
from agl.algorithms.prompts.spending import Budget, Spent
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.rollouts import run_rollouts
from agl.learners.base import Learner
from agl.proxy.accounts import SERVICE
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import AttemptedRollout, PolicyLoss, PromptTemplate, RolloutRequest, TrainingSample

FIRST = PromptTemplate(template="Do {task}")
BETTER = FIRST.changed_to("Do well: {task}")
SAMPLE = TrainingSample(
    token_ids=[1, 2], loss_mask=[0, 1], old_logprobs=[0.0, -0.1], advantages=[0.0, 1.0], rollout_id="r"
)
Work = Callable[[RunContext], Awaitable[dict[str, Any]]]


@dataclass
class Fake:
    """A stage of tests: does something, and remembers what it was given."""

    work: Work
    needs_learner: bool = False
    given: list[RunContext] = field(default_factory=list)

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        if self.needs_learner and learner is None:
            raise ConfigError("no learner")

    async def run(self, context: RunContext) -> RunResult:
        self.given.append(context)
        result: dict[str, Any] = {"before": [], "after": [], "counts": RolloutCounts()}
        return RunResult(**{**result, **await self.work(context)})


async def sampled(context: RunContext, number: int, label: str = "x") -> RolloutCounts:
    """Run so many rollouts as an algorithm does."""
    requests = [
        RolloutRequest(
            task=task,
            rollout_id=f"{context.prefix}-{label}-{task}",
            run_id=context.run_id,
            mode="train",
            resources_id=await context.policy.resources_id(label, {}),
        )
        for task in range(number)
    ]
    await run_rollouts(context.store, requests)
    return RolloutCounts(enqueued=number, succeeded=number)


async def prompting(context: RunContext) -> dict[str, Any]:
    counts = await sampled(context, 3)
    await context.report(0, {"search/best_reward": 0.1})
    await context.report(4, {"search/best_reward": 0.2})
    return {"prompts": {"prompt": BETTER}, "counts": counts, "diagnosis": ["took its time"]}


async def learning(context: RunContext) -> dict[str, Any]:
    counts = await sampled(context, 2)
    assert context.learner is not None
    await context.learner.update([SAMPLE], PolicyLoss())
    await context.policy.load(await context.learner.weights())
    await context.report(1, {"train/reward": 0.5})
    folder = context.run_dir / "policy"
    await context.learner.save_policy(folder)
    return {"counts": counts, "policy_dir": folder}


@asynccontextmanager
async def climb_of(
    folder: Path,
    *,
    store: LightningStore | None = None,
    resume: bool = False,
    script: Script = Script(reward=0.5),  # noqa: B008 - frozen
) -> AsyncGenerator[tuple[RunContext, Notebook, ConstantCritic, list[AttemptedRollout]]]:
    async with (
        store or InMemoryLightningStore() as opened,
        context_of(opened, folder, lambda _: script, resume=resume) as (
            context,
            book,
            critic,
            claimed,
        ),
    ):
        yield replace(context, resources={"prompt": FIRST}), book, critic, claimed


def ladder(stages: dict[str, Algorithm], **settings: Any) -> Ladder:
    return Ladder(stages=stages, **{"temperatures": [0.0], **settings})


async def test_each_stage_has_what_the_ones_before_found(tmp_path: Path) -> None:
    prompts, rl = Fake(prompting), Fake(learning, needs_learner=True)
    async with climb_of(tmp_path) as (context, book, critic, claimed):
        settings = ladder({"prompts": prompts, "rl": rl})
        assert settings.needs_learner
        result = await settings.run(context)
        resources = [
            (
                claim.rollout.rollout_id,
                await context.store.get_resources_by_id(claim.rollout.resources_id or ""),
            )
            for claim in claimed
        ]
    seen = {name: named.resources["prompt"] for name, named in resources}
    assert {seen[f"run-rl-x-{n}"] for n in range(2)} == {BETTER}
    assert {seen[f"run-start-val-reward_greedy-{n}-0"] for n in range(2)} == {FIRST}
    assert {seen[f"run-rl-val-reward_greedy-{n}-0"] for n in range(2)} == {BETTER}
    assert rl.given[0].resources == {"prompt": BETTER}
    assert prompts.given[0].val_tasks == rl.given[0].val_tasks == ()  # no stage can be fitted to them
    assert (result.counts.enqueued, result.policy_dir) == (5, tmp_path / "stages" / "rl" / "policy")
    assert (result.prompts, result.first_prompts) == ({"prompt": BETTER}, {"prompt": FIRST})
    assert result.prompts_dir == tmp_path / "stages" / "prompts" / "prompts"
    assert "prompts: took its time" in result.diagnosis
    assert critic.policy_version == 1
    # start; the stage's steps 0 and 4; behind it; the next stage's step 1; behind it
    assert list(book.values) == [0, 1, 5, 6, 8, 9]
    assert (book.values[5]["search/best_reward"], book.values[6]["ladder/rollouts"]) == (0.2, 3)
    table = [line.split() for line in result.table if line]
    assert [line[:2] for line in table[2:]] == [
        ["start", "0.500"],
        ["prompts", "3"],
        ["rl", "2"],
        ["all", "5"],
    ]


async def test_a_finished_stage_is_not_run_again_and_an_unfinished_one_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")

    async def broken(context: RunContext) -> dict[str, Any]:
        await sampled(context, 2)
        raise RunStoppedError("power cut")

    first = {"sft": Fake(learning, needs_learner=True), "rl": Fake(broken, needs_learner=True)}
    async with climb_of(tmp_path, store=SqliteLightningStore(path)) as (context, _, _, claimed):
        with pytest.raises(RunStoppedError, match="power cut"):
            await ladder(dict(first)).run(context)
        paid = {claim.rollout.rollout_id for claim in claimed}
    again = {"sft": Fake(learning, needs_learner=True), "rl": Fake(learning, needs_learner=True)}
    async with climb_of(tmp_path, store=SqliteLightningStore(path), resume=True) as (
        context,
        book,
        critic,
        claimed,
    ):
        result = await ladder(dict(again)).run(context)
        newly_paid = {claim.rollout.rollout_id for claim in claimed}
    assert again["sft"].given == []
    assert again["rl"].given[0].resume
    assert critic.policy_version == 2  # the finished stage's weights, and one more update
    assert not paid & newly_paid
    assert newly_paid == {f"run-rl-val-reward_greedy-{n}-0" for n in range(2)}
    assert result.counts.enqueued == 4
    assert book.rewound  # the boundary is reported again, once


async def test_a_spent_budget_ends_a_stage_with_its_step_and_begins_no_other(tmp_path: Path) -> None:
    async def long(context: RunContext) -> dict[str, Any]:
        counts = RolloutCounts()
        for step in range(10):
            counts += await sampled(context, 2, f"step-{step}")
            if reason := await context.ends_now():
                return {"counts": counts, "diagnosis": [reason]}
        return {"counts": counts}

    never = Fake(learning)
    async with climb_of(tmp_path) as (context, _, _, _):
        settings = ladder({"a": Fake(long), "b": never}, budget=Budget(max_rollouts=5))
        result = await settings.run(context)
    assert result.counts.enqueued == 6
    assert result.diagnosis == [
        "a: budget.max_rollouts=5 is spent",
        "b: not begun: budget.max_rollouts=5 is spent",
    ]
    assert never.given == []
    async with climb_of(tmp_path / "second") as (context, _, _, _):
        shared = ladder({"a": Fake(long), "b": Fake(long)}, budget=Budget(max_rollouts=10), shares={"a": 0.4})
        result = await shared.run(context)
    assert [line.split()[1] for line in result.table if line.strip().startswith(("a ", "b "))] == ["4", "6"]
    assert result.diagnosis[0] == "a: budget.max_rollouts=10 times its share 0.4 is spent"


async def test_a_limit_of_cost_that_nobody_can_keep_stops_the_run(tmp_path: Path) -> None:
    async def asks(context: RunContext) -> dict[str, Any]:
        await sampled(context, 2)
        await context.ends_now()
        raise AssertionError("calls without a price were taken for free")

    async with climb_of(tmp_path, script=Script(reward=0.5, service=SERVICE)) as (context, _, _, _):
        with pytest.raises(
            RunStoppedError, match=r"budget\.max_cost=1 cannot be kept: \d+ calls have no known"
        ):
            await ladder({"a": Fake(asks)}, budget=Budget(max_cost=1)).run(context)


async def test_real_algorithms_are_stages(tmp_path: Path) -> None:
    settings = ladder(
        {
            "one": GRPO(iterations=1, tasks_per_iteration=2, group_size=2),
            "two": GRPO(iterations=3, tasks_per_iteration=2, group_size=2),
        },
        budget=Budget(max_rollouts=17),
    )
    async with climb_of(tmp_path) as (context, book, critic, _):
        result = await settings.run(context)
    # each: 4 rollouts of preflight, then 4 an iteration: 8, and 8 + 1 more iteration is past 17
    assert [line.split()[1] for line in result.table if line.strip().startswith(("one", "two"))] == [
        "8",
        "12",
    ]
    assert critic.updates
    assert any("two: ends behind iteration 2: budget.max_rollouts=17 is spent" in note for note in book.notes)


def test_a_stage_that_cannot_work_is_named() -> None:
    with pytest.raises(ConfigError, match=r"stages\.rl: .*moves weights"):
        Ladder(stages={"rl": GRPO()}).check(None, trainable=False)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"stages": {}}, "stages"),
        ({"stages": {"a b": GRPO()}}, r"stages\.a b"),
        ({"stages": {"start": GRPO()}}, r"stages\.start"),
        (
            {"stages": {"a": GRPO()}, "shares": {"b": 0.5}, "budget": Budget(max_minutes=1)},
            r"shares\.b is no stage",
        ),
        ({"stages": {"a": GRPO()}, "shares": {"a": 1.5}, "budget": Budget(max_minutes=1)}, r"shares\.a=1\.5"),
        ({"stages": {"a": GRPO()}, "shares": {"a": 0.5}}, "set budget"),
        ({"stages": {"a": GRPO()}, "temperatures": []}, "temperatures"),
        ({"stages": {"a": GRPO()}, "evaluate_repeats": 0}, "evaluate_repeats"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Ladder(**settings)


def test_the_table_has_a_line_a_stage_and_the_sum() -> None:
    priced = Spent(rollouts=1200, calls=10, tokens=34567, cost_usd=0.25, seconds=90)
    unpriced = Spent(rollouts=3, calls=4, tokens=5, unpriced_calls=4, seconds=30)
    rungs = [
        Rung(name="start", spent=None, evaluations=[]),
        Rung(name="prompts", spent=priced, evaluations=[]),
        Rung(name="rl", spent=unpriced, evaluations=[]),
    ]
    assert table_of(rungs) == [
        "",
        "Ladder",
        "  stage    rollouts  tokens  minutes     cost",
        "  start",
        "  prompts     1,200  34,567      1.5  $0.2500",
        "  rl              3       5      0.5  unknown",
        "  all         1,203  34,572      2.0  $0.2500",
    ]
