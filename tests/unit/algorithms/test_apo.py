"""APO: critiques of the worst, rewrites by them, and a beam of what works best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prompt_searches import START, bench
from scripted_worker import Script

from agl.algorithms.apo import APO
from agl.errors import ConfigError
from agl.store.sqlite import InMemoryLightningStore

SETTINGS = APO(
    val_batch_size=4,
    feedback_batch_size=2,
    gradient_batch_size=2,
    beam_width=2,
    branch_factor=2,
    beam_rounds=2,
    max_attempts=1,
)


def by_words(text: str, _task: int) -> Script:
    """Each "careful" in the prompt is worth 0.25."""
    return Script(reward=0.25 * text.count("careful"))


def improving(rollout_id: str, body: Mapping[str, Any]) -> str:
    """Critiques ask for care, and every second rewrite brings it."""
    asked = json.loads(body["messages"][0]["content"])
    if asked["file"] == "critique.poml":
        return f"Not careful: {asked['prompt']}"
    assert asked["critique"] == f"Not careful: {asked['prompt']}"
    good = rollout_id.endswith("-0-0")
    return f"<prompt>{asked['prompt']} {'careful' if good else 'quick'}</prompt>"


async def test_the_beam_grows_better_prompts_round_after_round(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_words, reply=improving) as at,
    ):
        search = at.search
        await search.begin()
        assert await search.run() is None
        best = search.best
    assert best.prompts["prompt"].template == "Answer {task} careful careful"
    assert best.prompts["prompt"].version == 3
    assert best.made_by == "critique"
    parent = search.candidates[best.parent or ""]
    assert parent.prompts["prompt"].template == "Answer {task} careful"
    assert parent.parent == search.start.candidate_id
    # round 1: a critique and two rewrites of the start; round 2: of both prompts of the beam
    assert len(at.optimizer.asked) == 3 + 6
    assert [note.partition(";")[0] for note in at.notebook.notes[1:]] == [
        "round 1: 2 rewrites of 1 prompts",
        "round 2: 4 rewrites of 2 prompts",
    ]
    assert search.scorer.spent.rollouts <= SETTINGS.most_rollouts(search)


async def test_a_critique_reads_the_rollouts_of_the_feedback_tasks(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_words, reply=improving) as at,
    ):
        await at.search.begin()
        await at.search.run()
        asked = json.loads(at.optimizer.asked[0][1]["messages"][0]["content"])
        run_for_feedback = {c.rollout.task for c in at.claimed} - set(at.search.selection)
    assert [example["outcome"] for example in asked["examples"]] == ["reward 0", "reward 0"]
    assert (asked["prompt"], asked["placeholders"], asked["name"]) == (START, ["{task}"], "prompt")
    assert run_for_feedback == set(at.search.feedback[:4])  # two new tasks a round


async def test_each_step_asks_its_own_model(tmp_path: Path) -> None:
    settings = replace(SETTINGS, optimizer_model="any", gradient_model="critic", beam_rounds=1)
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=by_words, reply=improving) as at,
    ):
        await at.search.begin()
        await at.search.run()
    assert [body["model"] for _, body in at.optimizer.asked] == ["critic", "any", "any"]
    assert {body["temperature"] for _, body in at.optimizer.asked} == {1.0}


@pytest.mark.parametrize(
    ("reply", "causes"),
    [
        (lambda _id, _body: "", {"empty": 2}),
        (lambda _id, _body: {"content": "It is", "finish_reason": "length"}, {"truncated": 2}),
        (lambda _id, _body: {"content": None, "refusal": "I cannot."}, {"refused": 2}),
        (lambda _id, _body: "asdf {qwer", {"unmarked": 4}),
        (lambda _id, _body: "<prompt>Answer {task} at", {"unfinished": 4}),
    ],
)
async def test_useless_answers_are_counted_and_never_adopted(
    tmp_path: Path, reply: Any, causes: dict[str, int]
) -> None:
    settings = replace(SETTINGS, several_prompts="together")
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=by_words, reply=reply) as at,
    ):
        await at.search.begin()
        assert await at.search.run() is None
        assert at.search.best == at.search.start
        assert list(at.search.candidates) == [at.search.start.candidate_id]
    assert at.search.refused == causes


async def test_several_prompts_are_improved_in_turn_or_together(tmp_path: Path) -> None:
    changed: dict[str, list[list[str]]] = {}
    for mode in ("in_turn", "together"):
        settings = replace(SETTINGS, several_prompts=mode)  # type: ignore[arg-type]
        async with (
            InMemoryLightningStore() as store,
            bench(
                store, tmp_path / mode, settings, script=by_words, reply=improving, checker="Check {answer}"
            ) as at,
        ):
            await at.search.begin()
            await at.search.run()
            candidates = at.search.candidates
            changed[mode] = [
                sorted(
                    name
                    for name, prompt in one.prompts.items()
                    if prompt != candidates[one.parent].prompts[name]
                )
                for one in candidates.values()
                if one.parent is not None
            ]
    assert changed["in_turn"][:2] == [["prompt"]] * 2
    assert set(map(tuple, changed["in_turn"][2:])) == {("checker",)}
    assert set(map(tuple, changed["together"])) == {("checker", "prompt")}


async def test_a_reached_target_ends_the_search(tmp_path: Path) -> None:
    settings = replace(SETTINGS, target_reward=0.25, beam_rounds=5)
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=by_words, reply=improving) as at,
    ):
        await at.search.begin()
        assert await at.search.run() is None
    assert at.search.round == 2
    assert at.notebook.notes[-1] == "the search ends: algorithm.target_reward=0.25 is reached"


async def test_several_critiques_of_a_prompt_feed_its_rewrites(tmp_path: Path) -> None:
    settings = replace(SETTINGS, critiques_per_prompt=2, branch_factor=3, beam_rounds=1)
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=by_words, reply=improving) as at,
    ):
        await at.search.begin()
        await at.search.run()
    kinds = [rollout_id.split("-")[2] for rollout_id, _ in at.optimizer.asked]
    assert sorted(kinds) == ["critique"] * 2 + ["rewrite"] * 3


def test_a_run_goes_on_with_more_rounds() -> None:
    assert APO(beam_rounds=3).further() == "beam_rounds=6"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"branch_factor": 0}, "branch_factor"),
        ({"diversity_temperature": -0.1}, "diversity_temperature"),
        ({"gradient_batch_size": 9}, "gradient_batch_size"),
        ({"critique_file": "/no/such.poml"}, "critique_file"),
        ({"rewrite_file": "/no/such.poml"}, "rewrite_file"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        APO(**settings)
