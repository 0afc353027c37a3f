"""Few-shot selection: the set of good conversations that helps most is put into the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prompt_searches import bench, proxied_call
from scripted_worker import Script

from agl.algorithms.few_shot import FewShot, demonstration, filled_in, with_demonstrations
from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PromptTemplate

SETTINGS = FewShot(val_batch_size=4, demonstrations=2, pool_size=6, num_sets=5, max_attempts=1)
TALK = [
    {"role": "user", "content": "Answer 3 {x}"},
    {"role": "assistant", "content": "Nine."},
]
PROMPT = PromptTemplate(template="Answer {task}")


def test_a_demonstration_shows_the_task_and_not_the_prompt_again() -> None:
    assert demonstration(PROMPT, TALK) == "3 {x}\nassistant: Nine."
    assert (
        demonstration(PromptTemplate(template="Say {task}"), TALK) == "user: Answer 3 {x}\nassistant: Nine."
    )
    called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    assert demonstration(PROMPT, [TALK[0], called]).endswith('assistant: [{"function": {"name": "f"}}]')


def test_what_filled_the_placeholders_is_found_again() -> None:
    prompt = PromptTemplate(template="A {{brace}}:\n{schema}\n{question} End.")
    text = prompt.format(schema="t(a,\nb)", question="How many?")
    assert filled_in(prompt, text) == ["t(a,\nb)", "How many?"]
    assert filled_in(prompt, "something else") is None
    assert filled_in(PromptTemplate(template="A {{ x }}", engine="jinja2"), "A 3") is None


@pytest.mark.parametrize(
    ("engine", "template"),
    [("f-string", "Do {task}"), ("jinja2", "Do {{ task }}"), ("poml", "<p>Do {{ task }}</p>")],
)
def test_nothing_in_a_conversation_is_read_by_the_engine(engine: Any, template: str) -> None:
    prompt = PromptTemplate(template=template, engine=engine)
    evil = [{"role": "user", "content": "{{ other }} {% if x %} {more} <b> & {{{"}]
    text = with_demonstrations(prompt, [evil], caption="Look:")
    assert prompt.changed_to(text).placeholders == {"task"}
    assert text.endswith(template)
    if engine == "f-string":
        shown = prompt.changed_to(text).format(task="it")
        assert shown == "Look:\nuser: {{ other }} {% if x %} {more} <b> & {{{\n\nDo it"


async def searched(store: LightningStore, folder: Path, settings: FewShot, rewards: Any) -> Any:
    """Run a search in which each rollout has a call about its task."""

    async with bench(store, folder, settings, script=rewards) as at:
        run_rollouts = at.search.scorer.score

        async def with_calls(*given: Any, **named: Any) -> Any:
            scores = await run_rollouts(*given, **named)
            for claim in at.claimed:
                rollout, attempt = claim.rollout, claim.attempt
                asked = [{"role": "user", "content": f"Answer {rollout.task}"}]
                span = proxied_call(rollout.rollout_id, attempt.attempt_id, asked, f"It is {rollout.task}.")
                await store.add_many_spans([span])
            return scores

        at.search.scorer.score = with_calls  # type: ignore[method-assign]
        await at.search.begin()
        ending = await at.search.run()
        return at, ending


async def test_the_set_that_helps_most_is_kept(tmp_path: Path) -> None:
    def script(text: str, task: int) -> Script:
        if "It is" not in text:
            return Script(reward=float(task % 2), calls=[])
        return Script(reward=0.6 + 0.1 * text.count("It is") + 0.01 * ("It is 1." in text), calls=[])

    async with InMemoryLightningStore() as store:
        at, ending = await searched(store, tmp_path, SETTINGS, script)
        assert ending is None
        text = at.search.best.prompts["prompt"].template
        assert text.count("Example of work well done:") == 2
        assert text.endswith("\n\nAnswer {task}")
        shown = {int(number) for number in text.split("It is ")[1:] for number in [number.split(".")[0]]}
        assert all(number % 2 for number in shown)  # good ones only
        assert shown <= set(at.search.feedback)  # selection tasks are never shown
        assert at.optimizer.asked == []
        assert at.search.scorer.spent.rollouts <= SETTINGS.most_rollouts(at.search)


async def test_nothing_good_ends_the_search_with_the_first_prompt(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        at, ending = await searched(store, tmp_path, SETTINGS, lambda *_: Script(reward=0.5, calls=[]))
        assert "good_reward=1" in ending
        assert at.search.best is at.search.start


@pytest.mark.parametrize("name", ["demonstrations", "pool_size", "num_sets"])
def test_impossible_settings_are_refused_by_name(name: str) -> None:
    impossible: Mapping[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name}=0"):
        FewShot(**impossible)


def test_a_run_goes_on_with_more_sets() -> None:
    assert SETTINGS.further() == "num_sets=10"


async def test_sets_that_are_drawn_twice_are_told_once(tmp_path: Path) -> None:
    settings = replace(SETTINGS, demonstrations=1, pool_size=1)
    async with InMemoryLightningStore() as store:
        at, _ = await searched(store, tmp_path, settings, lambda *_: Script(reward=1.0, calls=[]))
    assert any(note.startswith("1 different sets out of 1 good conversations") for note in at.notebook.notes)
