"""Questions to the optimizer model: recorded, paid for once, and every kind of useless answer is told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from prompt_searches import Reply, bench
from scripted_worker import Script

from agl.algorithms.apo import APO
from agl.algorithms.prompts.asking import AskFailedError, OptimizerModel
from agl.algorithms.prompts.endings import OptimizerDownError
from agl.evaluation.rollouts import abandon_rollouts
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ProxyLLM, RolloutRequest

SETTINGS = APO(val_batch_size=4, diversity_temperature=0.7, optimizer_max_tokens=77)
MESSAGES = [{"role": "user", "content": "What is wrong?"}]


def never(_text: str, _task: int) -> Script:
    raise AssertionError("no agent runs here")


def asking_bench(store: InMemoryLightningStore, tmp_path: Path, reply: Any, settings: APO = SETTINGS) -> Any:
    return bench(store, tmp_path, settings, script=never, reply=lambda _id, body: reply(body))


async def test_a_question_is_a_rollout_with_its_answer_and_what_it_took(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: "Too vague.") as at:
        model: OptimizerModel = at.search.optimizer
        assert await model.ask("critique-1", MESSAGES) == "Too vague."
        rollout = await store.get_rollout_by_id("run-ask-critique-1")
        assert (rollout.status, rollout.run_id, rollout.task["messages"]) == ("succeeded", "run", MESSAGES)
        assert (model.spent.rollouts, model.spent.calls, model.spent.tokens) == (0, 1, 15)


async def test_the_sampling_is_sent_and_forced_for_the_model_that_is_asked(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: "x") as at:
        await at.search.optimizer.ask("one", MESSAGES)
        await at.search.optimizer.ask("two", MESSAGES, model="writer")
        for ask_id, name in (("one", "policy"), ("two", "writer")):
            rollout = await store.get_rollout_by_id(f"run-ask-{ask_id}")
            llm = (await store.get_resources_by_id(rollout.resources_id or "")).resources["llm"]
            assert isinstance(llm, ProxyLLM)
            assert (llm.model, llm.sampling) == (name, {"temperature": 0.7, "max_tokens": 77})
        bodies = [body for _, body in at.optimizer.asked]
    assert [(body["model"], body["temperature"], body["max_tokens"]) for body in bodies] == [
        ("policy", 0.7, 77),
        ("writer", 0.7, 77),
    ]


async def test_a_question_is_paid_for_once(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: "x") as at:
        for _ in range(2):
            assert await at.search.optimizer.ask("one", MESSAGES) == "x"
        assert len(at.optimizer.asked) == 1
        await at.search.optimizer.ask("one", [{"role": "user", "content": "Otherwise?"}])
        await at.search.optimizer.ask("one", [{"role": "user", "content": "Otherwise?"}])
        assert [rollout_id for rollout_id, _ in at.optimizer.asked] == ["run-ask-one", "run-ask-one-again"]


async def test_a_question_that_a_killed_process_left_is_put_once_more_with_the_same_seed(
    tmp_path: Path,
) -> None:
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: "x") as at:
        model = at.search.optimizer
        task = {"model": None, "messages": MESSAGES}
        await store.start_rollout(RolloutRequest(task=task, rollout_id="run-ask-one", run_id="run"))
        await abandon_rollouts(store, run_id="run")
        await model.ask("one", MESSAGES)
        for _ in range(2):  # a third process finds the second one's answer
            await model.ask("one", MESSAGES)
        await model.ask("other", MESSAGES)
        assert [rollout_id for rollout_id, _ in at.optimizer.asked] == ["run-ask-one-again", "run-ask-other"]
        seeds = [
            (await store.get_rollout_by_id(name)).metadata["seed"]
            for name in ("run-ask-one-again", "run-ask-other")
        ]
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: "x") as at:
        await at.search.optimizer.ask("one", MESSAGES)
        assert (await store.get_rollout_by_id("run-ask-one")).metadata["seed"] == seeds[0] != seeds[1]


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ({"content": ""}, "empty"),
        ({"content": None}, "empty"),
        ({"content": "Half a sen", "finish_reason": "length"}, "truncated"),
        ({"content": "x", "finish_reason": "content_filter"}, "refused"),
        ({"content": None, "refusal": "I cannot."}, "refused"),
        (httpx.Response(200, text="<html>busy</html>"), "no_answer"),
        (httpx.Response(200, json={"choices": []}), "no_answer"),
        (httpx.Response(429, text="slow down"), "http_error"),
        (httpx.ConnectError("refused"), "unreachable"),
    ],
)
async def test_a_useless_answer_is_told_by_its_cause(tmp_path: Path, reply: Reply, cause: str) -> None:
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: reply) as at:
        for _ in range(2):  # a resumed run finds it in the store
            with pytest.raises(AskFailedError) as failed:
                await at.search.optimizer.ask("one", MESSAGES)
            assert failed.value.cause == cause
        assert at.search.optimizer.failures == {cause: 2}
        assert (await store.get_rollout_by_id("run-ask-one")).status == "failed"
        assert len(at.optimizer.asked) == 1


async def test_an_answer_that_never_comes_is_given_up(tmp_path: Path) -> None:
    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    async with (
        InMemoryLightningStore() as store,
        asking_bench(store, tmp_path, lambda _: "x") as at,
        OptimizerModel(
            at.context, model=None, sampling={}, timeout_seconds=0.01, transport=Silent()
        ) as model,
    ):
        with pytest.raises(AskFailedError) as failed:
            await model.ask("one", MESSAGES)
    assert failed.value.cause == "timeout"


async def test_a_dead_model_is_told_after_three_questions_and_asked_again_when_resumed(
    tmp_path: Path,
) -> None:
    dead = {"dead": True}

    def reply(_body: Mapping[str, Any]) -> Reply:
        return httpx.Response(503, text="no servers") if dead["dead"] else "x"

    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, reply) as at:
        model = at.search.optimizer
        for number in range(2):
            with pytest.raises(AskFailedError):
                await model.ask(str(number), MESSAGES)
        with pytest.raises(OptimizerDownError, match=r"the policy itself.*3 questions.*503: no servers"):
            await model.ask("2", MESSAGES)
        dead["dead"] = False
        assert [await model.ask(str(number), MESSAGES) for number in range(3)] == ["x", "x", "x"]


async def test_a_dead_model_is_told_although_another_one_answers(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> Reply:
        return httpx.Response(503) if body["model"] == "dead" else "x"

    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, reply) as at:
        model = at.search.optimizer
        for number in range(2):
            await model.ask(f"good-{number}", MESSAGES)
            with pytest.raises(AskFailedError):
                await model.ask(f"dead-{number}", MESSAGES, model="dead")
        with pytest.raises(OptimizerDownError, match="dead"):
            await model.ask("dead-2", MESSAGES, model="dead")


async def test_a_model_that_never_said_anything_is_told_at_the_end_and_asked_again_when_resumed(
    tmp_path: Path,
) -> None:
    dead = {"dead": True}

    def reply(body: Mapping[str, Any]) -> Reply:
        return httpx.Response(503) if dead["dead"] and body["model"] == "dead" else "x"

    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, reply) as at:
        model = at.search.optimizer
        await model.check_heard()  # nobody was asked
        await model.ask("good", MESSAGES)
        with pytest.raises(AskFailedError):
            await model.ask("first", MESSAGES, model="dead")
        with pytest.raises(
            OptimizerDownError, match=r"\(dead\) gave no answer to any of 1 questions; the last: http"
        ):
            await model.check_heard()
        dead["dead"] = False
        assert await model.ask("first", MESSAGES, model="dead") == "x"
        await model.check_heard()


async def test_useless_answers_are_no_outage(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store, asking_bench(store, tmp_path, lambda _: "") as at:
        for number in range(5):
            with pytest.raises(AskFailedError):
                await at.search.optimizer.ask(str(number), MESSAGES)


async def test_a_question_that_the_store_gave_up_meanwhile_is_a_failure(tmp_path: Path) -> None:
    class Late(httpx.AsyncBaseTransport):
        """Answers when the store has long ended the attempt."""

        def __init__(self, store: InMemoryLightningStore) -> None:
            self._store = store

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            attempt = await self._store.get_latest_attempt("run-ask-one")
            assert attempt is not None
            await self._store.update_attempt("run-ask-one", attempt.attempt_id, status="timeout")
            return httpx.Response(200, json={"choices": [{"message": {"content": "x"}}]})

    async with (
        InMemoryLightningStore() as store,
        asking_bench(store, tmp_path, lambda _: "x") as at,
        OptimizerModel(
            at.context, model=None, sampling={}, timeout_seconds=9, transport=Late(store)
        ) as model,
    ):
        with pytest.raises(AskFailedError) as failed:
            await model.ask("one", MESSAGES)
    assert failed.value.cause == "timeout"
