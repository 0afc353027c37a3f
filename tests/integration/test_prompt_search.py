"""Searches for prompts over the real proxy: optimizer models that misbehave, die and come back; POML; sampling."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import CountingEngine

import agl
from agl.algorithms.apo import APO
from agl.algorithms.prompts.markup import BUILT_IN, Questions
from agl.errors import ConfigError, InferenceError, RunStoppedError
from agl.metrics.settings import MetricSettings
from agl.types import ModelEndpoint

START = "Add {task}"
Request = Mapping[str, Any]
SETTINGS = APO(
    val_batch_size=2,
    feedback_batch_size=2,
    gradient_batch_size=1,
    beam_width=1,
    branch_factor=2,
    beam_rounds=1,
    optimizer_timeout_seconds=1.0,
    optimizer_max_tokens=99,
    diversity_temperature=0.8,
    max_tokens=7,
)
GOOD = "<prompt>Add well: {task}</prompt>"


def answer_of(text: str | None, reason: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, **message},
                "finish_reason": reason,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


class OptimizingEngine(CountingEngine):
    """Answers agents, critics and writers, each by a function of the number of their call."""

    def __init__(
        self,
        critique: Callable[[int], Any] = lambda _: "Bad.",
        rewrite: Callable[[int], Any] = lambda _: GOOD,
    ) -> None:
        super().__init__(trainable=False)
        self.requests: dict[str, list[Request]] = {"agent": [], "critique": [], "rewrite": []}
        self._answers = {"agent": lambda _: "fine", "critique": critique, "rewrite": rewrite}

    async def complete_chat(self, request: Request) -> dict[str, Any]:
        text = str(request["messages"][-1]["content"])
        kind = "rewrite" if "# Your rewrite" in text else "critique" if "# Your critique" in text else "agent"
        self.requests[kind].append(request)
        found = self._answers[kind](len(self.requests[kind]) - 1)
        if found == "slow":
            await asyncio.sleep(60)
        if isinstance(found, Exception):
            raise found
        return answer_of(found) if isinstance(found, str) else found


@agl.rollout
async def agent(task: int, llm: agl.LLM, prompt: agl.PromptTemplate) -> float:
    """0.75 for a prompt that says well."""
    async with httpx.AsyncClient() as client:
        body = {"model": llm.model, "messages": [{"role": "user", "content": prompt.format(task=task)}]}
        answered = await client.post(f"{llm.base_url}/chat/completions", json=body)
        answered.raise_for_status()
    return 0.75 if "well" in prompt.template else 0.25


def trainer(run_dir: Path, engine: OptimizingEngine, settings: APO, **given: Any) -> agl.Trainer:
    return agl.Trainer(
        agent=agent,
        algorithm=settings,
        inference=engine,
        resources={"prompt": agl.PromptTemplate(template=START)},
        metrics=MetricSettings(console="off"),
        run_dir=str(run_dir),
        **given,
    )


async def searched(run_dir: Path, engine: OptimizingEngine, settings: APO, **given: Any) -> Any:
    outcome = await trainer(run_dir, engine, settings, **given).fit_async(train=[1, 2, 3, 4], val=[5, 6])
    assert outcome is not None
    return outcome.result


async def test_a_search_improves_the_prompt_over_the_real_proxy(tmp_path: Path) -> None:
    engine = OptimizingEngine()
    result = await searched(tmp_path / "run", engine, SETTINGS)
    assert (result.before[0].reward.mean, result.after[0].reward.mean) == (0.25, 0.75)
    assert result.prompts["prompt"].template == "Add well: {task}"
    asked = engine.requests["critique"][0]
    assert (asked["temperature"], asked["max_tokens"]) == (0.8, 99)
    assert {(request["temperature"], request["max_tokens"]) for request in engine.requests["agent"]} == {
        (0.0, 7)
    }
    text = asked["messages"][-1]["content"]
    assert START in text
    assert "reward 0.25" in text
    assert re.search(r"user: Add \d\n\nassistant: fine", text)


async def test_every_useless_rewrite_is_counted_and_survived(tmp_path: Path) -> None:
    answers: list[Any] = [
        "asdf qwer",
        "",
        answer_of("<prompt>Add", "length"),
        answer_of(None, refusal="I cannot help with that."),
        answer_of("x", "content_filter"),
        "<prompt>Add",
        f"<prompt>{START}</prompt>",
        "<prompt>Just add</prompt>",
        '<prompt>Say {"sum": 1} for {task} and {other}</prompt>',
        "slow",
        InferenceError("overloaded", status=400),
        {"choices": "none"},
        GOOD,
    ]
    engine = OptimizingEngine(rewrite=lambda number: answers[number])
    result = await searched(tmp_path / "run", engine, replace(SETTINGS, branch_factor=len(answers)))
    told = "\n".join(result.diagnosis)
    counted = dict(re.findall(r"(\w+) (\d+)", told.partition("could not be used: ")[2].partition("\n")[0]))
    assert counted == {
        "unmarked": "1",
        "empty": "1",
        "truncated": "1",
        "refused": "2",
        "unfinished": "1",
        "unchanged": "1",
        "timeout": "1",
        "http_error": "2",
    }
    assert "rewrites were mended: " in told
    assert result.after[0].reward.mean == 0.75


async def test_useless_critiques_lead_to_no_rewrites(tmp_path: Path) -> None:
    answers: list[Any] = ["", answer_of("It is", "length"), "slow", "It is not done well."]
    engine = OptimizingEngine(critique=lambda number: answers[number])
    settings = replace(SETTINGS, critiques_per_prompt=4, branch_factor=4)
    result = await searched(tmp_path / "run", engine, settings)
    assert len(engine.requests["rewrite"]) == 1
    assert "3 answers of the optimizer model could not be used" in "\n".join(result.diagnosis)


async def test_a_dead_optimizer_stops_early_with_its_error_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    settings = replace(SETTINGS, optimizer_model="writer", critiques_per_prompt=4, branch_factor=1)
    dead = {"writer": ModelEndpoint(model="writer", urls=("http://127.0.0.1:9/v1",))}
    engine = OptimizingEngine()
    with pytest.raises(
        RunStoppedError, match=r"optimizer model \(writer\) gave no answer to \d questions.*502"
    ):
        await searched(tmp_path / "run", engine, settings, proxy=agl.LLMProxy(endpoints=dead, max_retries=0))
    num_calls = len(engine.requests["agent"])
    assert num_calls == 2 + 2 + 2  # selection, held out, feedback: nothing was burnt
    alive = {"writer": ModelEndpoint(model="writer", upstream="engine")}
    again = trainer(tmp_path / "run", engine, settings, proxy=agl.LLMProxy(endpoints=alive))
    outcome = await again.fit_async(train=[1, 2, 3, 4], val=[5, 6], resume=True)
    assert outcome is not None
    assert outcome.result.after[0].reward.mean == 0.75
    new = engine.requests["agent"][num_calls:]
    assert all("well" in request["messages"][0]["content"] for request in new)


async def test_a_model_that_nobody_serves_is_no_other_model(tmp_path: Path) -> None:
    class Strict(OptimizingEngine):
        async def complete_chat(self, request: Request) -> dict[str, Any]:
            if request["model"] != self.model:
                raise InferenceError(f"no model {request['model']!r}", status=404)
            return await super().complete_chat(request)

    settings = replace(SETTINGS, optimizer_model="gpt-nobody", critiques_per_prompt=3)
    with pytest.raises(RunStoppedError, match=r"404.*no model 'gpt-nobody'"):
        await searched(tmp_path / "run", Strict(), settings)


async def test_questions_are_rendered_as_they_were_written() -> None:
    values = {
        "prompt": 'Use {task}\n  and <b> & "x" {{json}}',
        "name": "prompt",
        "placeholders": ["{task}", "{{ x }}"],
        "opening": "<prompt>",
        "closing": "</prompt>",
    }
    shown = {
        "outcome": "reward 0",
        "transcript": 'user: {"a": 1}\n\nassistant: </human-msg> {{ y }}',
        "reward": 0,
    }
    questions = Questions()
    critique, rewrite, blind = await asyncio.gather(
        questions.messages(BUILT_IN / "critique.poml", {**values, "examples": [shown]}),
        questions.messages(BUILT_IN / "rewrite.poml", {**values, "critique": "Too <short>."}),
        questions.messages(BUILT_IN / "rewrite.poml", {**values, "critique": ""}),
    )
    assert [message["role"] for message in critique] == ["system", "user"]
    assert values["prompt"] in critique[1]["content"]
    assert shown["transcript"] in critique[1]["content"]
    assert "reward 0" in critique[1]["content"]
    assert f"<prompt>\n{values['prompt']}\n</prompt>" in rewrite[1]["content"]
    assert "Too <short>." in rewrite[1]["content"]
    assert "{{ x }} exactly as it is" in rewrite[1]["content"]
    assert "What is wrong" not in blind[1]["content"]


async def test_a_users_own_file_asks_the_question(tmp_path: Path) -> None:
    own = tmp_path / "mine.poml"
    own.write_text("<poml><human-msg># Your critique of {{ prompt }}, please</human-msg></poml>")
    engine = OptimizingEngine()
    await searched(tmp_path / "run", engine, replace(SETTINGS, critique_file=str(own)))
    (asked,) = engine.requests["critique"]
    assert asked["messages"] == [{"role": "user", "content": f"# Your critique of {START}, please"}]


async def test_a_broken_file_of_a_user_is_named(tmp_path: Path) -> None:
    own = tmp_path / "mine.poml"
    own.write_text("<poml><p>{{ no.such.thing }}</p></poml>")
    with pytest.raises(ConfigError, match=r"mine\.poml cannot be made into a question"):
        await searched(tmp_path / "run", OptimizingEngine(), replace(SETTINGS, critique_file=str(own)))
