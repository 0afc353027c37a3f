"""GEPA through the gepa package: our rollouts, questions and budgets, its choices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prompt_searches import START, Bench, bench
from scripted_worker import Script

from agl.algorithms.gepa import GEPA, Bridge
from agl.algorithms.prompts.spending import Budget
from agl.errors import ConfigError, RunStoppedError
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore

SETTINGS = GEPA(val_batch_size=4, iterations=5, max_attempts=1, perfect_reward=None)


def longer(_id: str, body: Mapping[str, Any]) -> str:
    """The prompt with one more word."""
    asked = json.loads(body["messages"][0]["content"])
    assert asked["file"] == "reflect.poml"
    return f"<prompt>{asked['prompt']} word</prompt>"


def by_length(text: str, _task: int) -> Script:
    return Script(reward=len(text) / 100)


async def searched(at: Bench) -> str | None:
    await at.search.begin()
    return await at.search.run()


async def test_prompts_get_better_from_parent_to_child(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_length, reply=longer) as at,
    ):
        assert await searched(at) is None
        best = at.search.best
    assert best.prompts["prompt"].template == START + 5 * " word"  # each iteration builds on the last
    assert best.made_by == "reflection"
    assert best.parent in at.search.candidates
    assert len(at.optimizer.asked) == 5
    assert at.search.scorer.spent.rollouts <= SETTINGS.most_rollouts(at.search)
    assert at.search.round == 1 + 5


async def test_a_rewrite_that_does_not_win_its_minibatch_is_run_no_further(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=lambda *_: Script(reward=0.5), reply=longer) as at,
    ):
        await searched(at)
        assert at.search.best is at.search.start
        tried = [one for one in at.search.candidates.values() if one is not at.search.start]
        assert [len(at.search.scores_of(one).rewards) for one in tried] == [0]
    assert at.search.scorer.spent.rollouts == 4 + 8 + 8  # selection; feedback, of the parent and the child


async def test_reflections_read_failures_with_their_cause_and_failures_win_nothing(tmp_path: Path) -> None:
    def script(text: str, task: int) -> Script:
        return Script(error="KeyError") if "word" in text and task % 3 else Script(reward=0.5)

    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=script, reply=longer) as at,
    ):
        await searched(at)
        assert at.search.best is at.search.start  # a failure is no 0, and no 0.5
        assert at.search.scorer.counts.failed["KeyError"] > 0

    def failing(text: str, task: int) -> Script:
        return (
            Script(reward=0.9)
            if "word" in text
            else Script(error="KeyError")
            if task % 2
            else Script(reward=0.5)
        )

    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path / "second", SETTINGS, script=failing, reply=longer) as at,
    ):
        await searched(at)
        asked = [json.loads(body["messages"][0]["content"]) for _, body in at.optimizer.asked]
    outcomes = {shown["outcome"] for question in asked for shown in question["examples"]}
    assert "failed: KeyError: KeyError in the script" in outcomes
    assert at.search.best.prompts["prompt"].template.startswith(f"{START} word")


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("no marks at all", "unmarked"),
        ("", "empty"),
        ({"content": "<prompt>Answer", "finish_reason": "length"}, "truncated"),
        ({"content": None, "refusal": "No."}, "refused"),
        ("<prompt>{prompt}</prompt>", "unchanged"),
        (f"<prompt>{START} {{other}}</prompt>", None),
    ],
)
async def test_useless_answers_are_counted_and_survived(
    tmp_path: Path, answer: Any, cause: str | None
) -> None:
    def sometimes(rollout_id: str, body: Mapping[str, Any]) -> Any:
        if not rollout_id.endswith(("-1", "-3")):
            return longer(rollout_id, body)
        asked = json.loads(body["messages"][0]["content"])
        return answer.replace("{prompt}", asked["prompt"]) if cause == "unchanged" else answer

    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_length, reply=sometimes) as at,
    ):
        assert await searched(at) is None
    if cause is None:
        assert at.search.repaired["braces"] > 0
    else:
        assert at.search.refused == {cause: 2}
        assert at.search.best.prompts["prompt"].template == START + 3 * " word"


async def test_a_budget_ends_the_search_with_the_best_so_far(tmp_path: Path) -> None:
    settings = replace(SETTINGS, budget=Budget(max_rollouts=20))
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=by_length, reply=longer) as at,
    ):
        ending = await searched(at)
    assert ending is not None
    assert "budget.max_rollouts=20" in ending
    assert at.search.scorer.spent.rollouts <= 20
    assert at.search.best is not at.search.start


async def test_a_dead_model_stops_the_run_with_its_error(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_length, reply=lambda *_: httpx.ConnectError("gone")) as at,
    ):
        with pytest.raises(RunStoppedError, match="gave no answer to 3 questions in a row"):
            await searched(at)
    assert len(at.optimizer.asked) == 3


async def test_a_resumed_search_pays_for_nothing_twice_and_ends_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")

    def lucky(text: str, task: int) -> Script:
        return Script(reward=((len(text) * 31 + task * 17) % 10) / 10)

    async with (
        SqliteLightningStore(path) as store,
        bench(store, tmp_path, SETTINGS, script=lucky, reply=longer) as at,
    ):
        await searched(at)
        best, spent, paid = at.search.best, at.search.spent, len(at.claimed)
    assert paid > 0
    async with (
        SqliteLightningStore(path) as store,
        bench(store, tmp_path, SETTINGS, script=lucky, reply=longer, resume=True) as at,
    ):
        await searched(at)
        assert at.claimed == []
        assert at.optimizer.asked == []
        assert (at.search.best.candidate_id, at.search.spent.rollouts) == (best.candidate_id, spent.rollouts)


async def test_several_prompts_are_improved_together_or_in_turn_and_merged(tmp_path: Path) -> None:
    def script(text: str, task: int) -> Script:
        first, second = (part.count(" word") for part in text.split("|"))
        return Script(reward=min(first, 2) * (task % 2) / 4 + min(second, 2) * (1 - task % 2) / 4)

    for several, changed in (("in_turn", 1), ("together", 2)):
        settings = replace(SETTINGS, several_prompts=several, iterations=6, max_merges=2)  # type: ignore[arg-type]
        async with (
            InMemoryLightningStore() as store,
            bench(
                store,
                tmp_path / several,
                settings,
                script=script,
                reply=longer,
                num_tasks=16,
                other="Also {task}",
            ) as at,
        ):
            await searched(at)
            first = next(one for one in at.search.candidates.values() if one.parent is not None)
            versions = [prompt.version for prompt in first.prompts.values()]
            assert sum(version > 1 for version in versions) == changed
            assert at.search.standing(at.search.best) > at.search.standing(at.search.start)


async def test_proposals_of_an_iteration_are_made_side_by_side(tmp_path: Path) -> None:
    settings = replace(SETTINGS, iterations=2, proposals_per_iteration=3)
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=by_length, reply=longer, num_tasks=16) as at,
    ):
        await searched(at)
    assert [rollout_id for rollout_id, _ in at.optimizer.asked] == [
        f"run-ask-reflect-{n}" for n in range(1, 7)
    ]


async def test_a_minibatch_of_perfect_rewards_asks_nothing(tmp_path: Path) -> None:
    settings = replace(SETTINGS, perfect_reward=1.0)
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=lambda *_: Script(reward=1.0), reply=longer) as at,
    ):
        assert await searched(at) is None
    assert at.optimizer.asked == []


async def test_a_cancelled_search_leaves_no_thread_behind() -> None:
    bridge = Bridge(asyncio.get_running_loop())
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(bridge.run(lambda: bridge.call(hang)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()
    assert bridge.has_ended


async def test_an_error_that_the_program_swallows_is_raised_and_ends_it() -> None:
    bridge = Bridge(asyncio.get_running_loop())
    begun = 0

    async def fail() -> None:
        nonlocal begun
        begun += 1
        raise LookupError("first")

    def program() -> None:
        for _ in range(3):
            try:
                bridge.call(fail)
            except LookupError:
                continue

    with pytest.raises(LookupError, match="first"):
        await bridge.run(program)
    assert begun == 1


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"iterations": 0}, "iterations"),
        ({"minibatch_size": 0}, "minibatch_size"),
        ({"proposals_per_iteration": 0}, "proposals_per_iteration"),
        ({"max_merges": -1}, "max_merges"),
        ({"diversity_temperature": -1.0}, "diversity_temperature"),
        ({"reflect_file": "/no/such.poml"}, "reflect_file"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        GEPA(**settings)


def test_a_run_goes_on_with_more_iterations() -> None:
    assert SETTINGS.further() == "iterations=10"
