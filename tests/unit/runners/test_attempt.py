"""What an agent does becomes a reward, no reward or an error; never anything else."""

import asyncio
import logging
import threading
from collections import Counter

import pytest
from opentelemetry import trace

import agl
from agl.agents.base import Answer
from agl.types import LLM, ProxyLLM, RolloutConfig
from agl.types.tokens import scope_of


async def test_what_an_agent_returns_is_the_reward(run_tasks) -> None:
    async def agent(task):
        return task

    number, whole, none, many = await run_tasks(agent, [0.5, 1, None, {"reward": 0.25, "style": 1}])
    assert [rollout.status for rollout in (number, whole, none, many)] == ["succeeded"] * 4
    assert (number.reward, whole.reward, none.reward, many.reward) == (0.5, 1.0, None, 0.25)
    assert many.reward_dimensions == {"reward": 0.25, "style": 1.0}
    assert (run_tasks.stats.succeeded, run_tasks.stats.without_reward) == (4, 1)


async def test_the_last_emitted_reward_counts_unless_one_is_returned(run_tasks, spans_of) -> None:
    async def agent(task):
        agl.emit_reward(0.1)
        agl.emit_reward({"a": 0.2, "b": 0.9}, primary="b")
        return task

    emitted, returned = await run_tasks(agent, [None, 0.7])
    assert (emitted.reward, emitted.reward_dimensions) == (0.9, {"a": 0.2, "b": 0.9})
    assert (returned.reward, returned.reward_dimensions) == (0.7, {})
    values = [
        span.attributes["agl.reward.value"] for span in await spans_of(returned) if span.name == "agl.reward"
    ]
    assert values == [0.1, 0.9, 0.7]


@pytest.mark.parametrize("value", ["1.0", True, float("nan"), [1.0], {}, {"a": 1.0, "b": 2.0}], ids=str)
async def test_a_return_value_that_is_no_reward_fails_the_attempt(run_tasks, value: object) -> None:
    async def agent(task):
        agl.emit_reward(1.0)
        return value

    (rollout,) = await run_tasks(agent, [0])
    assert (rollout.status, rollout.reward) == ("failed", None)
    assert rollout.error.cause == "AgentError"
    assert "returned something that is no reward" in rollout.error.message
    assert run_tasks.stats.failed == {"AgentError": 1}


async def test_errors_are_counted_by_cause_and_none_becomes_a_reward(run_tasks) -> None:
    async def agent(task):
        agl.emit_reward(1.0)
        if task % 10 < 2:
            raise ValueError(f"task {task}")
        if task % 10 == 2:
            raise KeyError(task)
        return 1.0

    rollouts = await run_tasks(agent, list(range(100)))
    failed = [rollout for rollout in rollouts if rollout.status == "failed"]
    assert Counter(rollout.error.cause for rollout in failed) == {"ValueError": 20, "KeyError": 10}
    assert [rollout.reward for rollout in failed] == [None] * 30
    assert [rollout.reward for rollout in rollouts if rollout.status == "succeeded"] == [1.0] * 70
    assert run_tasks.stats.failed == {"ValueError": 20, "KeyError": 10}
    assert (run_tasks.stats.claimed, run_tasks.stats.succeeded) == (100, 70)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_traceback_is_on_the_attempt_and_its_root_span(
    run_tasks, spans_of, store, kind: str
) -> None:
    def deep() -> None:
        raise ZeroDivisionError("the agent's own bug")

    async def async_agent(task):
        deep()

    def sync_agent(task):
        deep()

    (rollout,) = await run_tasks(async_agent if kind == "async" else sync_agent, [0])
    attempt = await store.get_latest_attempt(rollout.rollout_id)
    for error in (rollout.error, attempt.error):
        assert (error.cause, error.message) == ("ZeroDivisionError", "the agent's own bug")
        assert "in deep\n" in error.traceback
        assert error.traceback.startswith("Traceback (most recent call last)")
    (root,) = await spans_of(rollout)
    assert (root.name, root.status.code) == ("agl.rollout", "error")
    assert "in deep\n" in root.events[0].attributes["exception.stacktrace"]


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "wrong", [SystemExit(1), asyncio.CancelledError(), Unspeakable()], ids=["exit", "cancel", "own"]
)
async def test_an_agent_that_ends_itself_is_a_failure_like_any_other(run_tasks, wrong: BaseException) -> None:
    async def agent(task):
        raise wrong

    (rollout,) = await run_tasks(agent, [0])
    assert (rollout.status, rollout.error.cause) == ("failed", type(wrong).__name__)


async def test_an_error_in_half_characters_is_recorded(run_tasks) -> None:
    async def agent(task):
        agl.emit_message("bad \udc80 text")
        raise ValueError("bad \udc80 text")

    (rollout,) = await run_tasks(agent, [0])
    assert (rollout.error.cause, rollout.error.message) == ("ValueError", "bad ? text")
    assert run_tasks.stats.spans_lost == {}


async def test_a_timeout_cancels_the_agent_for_real(run_tasks, store) -> None:
    ended: list[str] = []

    async def agent(task):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(task)
            raise

    (rollout,) = await run_tasks(agent, ["t"], config=RolloutConfig(timeout_seconds=0.05))
    attempt = await store.get_latest_attempt(rollout.rollout_id)
    assert ended == ["t"]
    assert (rollout.status, rollout.error.cause, attempt.status) == ("failed", "timeout", "timeout")
    assert run_tasks.stats.failed == {"timeout": 1}


async def test_a_sync_agent_that_times_out_leaves_a_thread_and_says_so(run_tasks, caplog) -> None:
    release = threading.Event()

    def agent(task):
        release.wait()

    (rollout,) = await run_tasks(agent, ["t"], config=RolloutConfig(timeout_seconds=0.05))
    release.set()
    assert (rollout.status, rollout.error.cause) == ("failed", "timeout")
    assert "cannot be stopped" in caplog.text


async def test_an_agent_that_ignores_its_cancellation_is_left_behind(run_tasks, monkeypatch, caplog) -> None:
    monkeypatch.setattr("agl.runners.attempt.STOP_SECONDS", 0.01)
    release = asyncio.Event()

    async def agent(task):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    (rollout,) = await run_tasks(agent, ["t"], config=RolloutConfig(timeout_seconds=0.02))
    release.set()
    assert rollout.error.cause == "timeout"
    assert "ignores its cancellation" in caplog.text


async def test_a_missing_resource_fails_the_attempt(run_tasks, store) -> None:
    async def agent(task, llm):
        return 1.0

    (none_yet,) = await run_tasks(agent, [0])
    await store.add_resources({"other": {"any": "json"}})
    (not_this,) = await run_tasks(agent, [0])
    for rollout in (none_yet, not_this):
        assert (rollout.status, rollout.error.cause) == ("failed", "missing_resource")
    assert "this rollout has other" in not_this.error.message


async def test_the_agent_gets_the_resources_of_its_rollout_and_its_own_address(run_tasks, store) -> None:
    seen: dict[str, LLM] = {}

    async def agent(task, llm, attempt):
        seen[attempt.attempt_id] = llm
        return float(llm.model == "policy")

    await store.add_resources({"llm": ProxyLLM(base_url="http://127.0.0.1:1", model="policy", api_key="k")})
    rollouts = await run_tasks(agent, [0, 1])
    assert [rollout.reward for rollout in rollouts] == [1.0, 1.0]
    urls = {f"http://127.0.0.1:1/rollout/{rollout.rollout_id}/attempt/" for rollout in rollouts}
    assert {llm.base_url.rpartition("/attempt/")[0] + "/attempt/" for llm in seen.values()} == urls
    assert all(llm.base_url.endswith(f"/{attempt_id}/v1") for attempt_id, llm in seen.items())


async def test_every_span_belongs_to_its_rollout_when_fifty_run_at_once(run_tasks, spans_of) -> None:
    library = trace.get_tracer("library")

    @agl.operation
    def tool(task: int) -> int:
        agl.emit_message(f"task {task}")
        return task

    async def async_agent(task, rollout):
        for _ in range(3):
            with library.start_as_current_span(f"library {rollout.rollout_id}"):
                await asyncio.sleep(0)
                await asyncio.to_thread(tool, task)
        agl.emit_reward(float(task))

    def sync_agent(task, rollout):
        for _ in range(3):
            with library.start_as_current_span(f"library {rollout.rollout_id}"):
                tool(task)
        return float(task)

    async def mixed(task, rollout):
        if task % 2:
            return await async_agent(task, rollout)
        return await asyncio.to_thread(sync_agent, task, rollout)

    rollouts = await run_tasks(mixed, list(range(50)), max_concurrency=50)
    rollouts += await run_tasks(sync_agent, list(range(50)), max_concurrency=50)
    assert len(rollouts) == 100
    for rollout in rollouts:
        assert rollout.reward == float(rollout.task)
        spans = await spans_of(rollout)
        counts = Counter(span.name for span in spans)
        assert len(spans) == sum(counts.values()) == 11
        assert counts[f"library {rollout.rollout_id}"] == 3
        assert (counts["agl.message"], counts["agl.reward"], counts["agl.rollout"]) == (3, 1, 1)
        bodies = {span.attributes["agl.message.body"] for span in spans if span.name == "agl.message"}
        assert bodies == {f"task {rollout.task}"}
        assert len({span.trace_id for span in spans}) == 1
        assert [span.sequence_id for span in spans] == list(range(1, 12))
        assert all("agl.sink" not in span.attributes for span in spans)


async def test_spans_are_in_the_store_before_the_rollout_is_finished(store, run_tasks) -> None:
    async def agent(task):
        agl.emit_reward(1.0)

    seen: list[int] = []
    update = store.update_attempt

    async def watched(rollout_id, attempt_id, **report):
        seen.append((await store.statistics())["spans"])
        return await update(rollout_id, attempt_id, **report)

    store.update_attempt = watched
    await run_tasks(agent, [0])
    assert seen == [2]


async def test_an_attempt_names_its_agent_on_the_root_span(run_tasks, spans_of) -> None:
    async def solver(task):
        return 1.0

    (rollout,) = await run_tasks(solver, [0])
    *_, root = await spans_of(rollout)
    assert root.attributes == {"agl.agent": solver.__qualname__, "agl.mode": "train", "agl.result": "1.0"}
    assert (root.status.code, root.parent_id) == ("ok", None)


async def test_a_retried_rollout_keeps_the_spans_of_each_attempt(run_tasks, spans_of) -> None:
    tries: list[str] = []

    async def agent(task, attempt):
        tries.append(attempt.attempt_id)
        if len(tries) == 1:
            raise ValueError("once")
        return 1.0

    (rollout,) = await run_tasks(agent, [0], config=RolloutConfig(max_attempts=2))
    assert (rollout.status, rollout.reward, rollout.num_attempts) == ("succeeded", 1.0, 2)
    assert [span.attempt_id for span in await spans_of(rollout)] == [tries[0], tries[1], tries[1]]


async def test_rollouts_of_unknown_resources_fail(run_tasks, store) -> None:
    async def agent(task):
        return 1.0

    async def get_resources_by_id(resources_id):
        raise agl.errors.NotFoundError(resources_id)

    await store.add_resources({"a": 1})
    store.get_resources_by_id = get_resources_by_id
    (rollout,) = await run_tasks(agent, [0])
    assert rollout.error.cause == "missing_resource"


async def test_one_object_serves_all_attempts_and_is_set_up_once_a_runner(run_tasks) -> None:
    class Counting(agl.LitAgent):
        def __init__(self) -> None:
            self.calls: list[str] = []
            self.met = asyncio.Event()

        def setup(self) -> None:
            self.calls.append("setup")

        async def teardown(self) -> None:
            self.calls.append("teardown")

        async def rollout(self, task: int) -> float:
            self.calls.append("rollout")
            if self.calls.count("rollout") == 3:
                self.met.set()
            await self.met.wait()
            return float(task)

    agent = Counting()
    rollouts = await run_tasks(agent, [1, 2, 3])
    assert [rollout.reward for rollout in rollouts] == [1, 2, 3]
    assert agent.calls == ["setup", "rollout", "rollout", "rollout", "teardown"]


async def test_an_agent_may_tell_its_reward_from_what_a_grader_sees(run_tasks) -> None:
    async def agent(task):
        return Answer(value={"answer": task}, reward=task)

    (alone,) = await run_tasks(agent, [0.5])
    assert alone.reward == 0.5
    (graded,) = await run_tasks(agent, [0.5], grader=lambda result: result["answer"] * 10)
    assert graded.reward == 5.0


async def test_an_attempt_is_told_where_the_store_is_with_a_token_of_its_own(run_tasks) -> None:
    told: list[dict[str, str]] = []

    class Curious:
        name = "curious"

        async def run(self, assignment):
            told.append(dict(assignment.environment))
            return 1.0

    (rollout,) = await run_tasks(Curious(), [0], store_url="http://store:1", store_token="admin")
    (environment,) = told
    assert environment.pop("AGL_ATTEMPT_ID")
    token = environment.pop("AGL_STORE_TOKEN")
    assert scope_of("admin", token) is not None
    assert scope_of("admin", token)[0] == rollout.rollout_id
    assert environment == {
        "AGL_ROLLOUT_ID": rollout.rollout_id,
        "AGL_MODE": "train",
        "AGL_STORE_URL": "http://store:1",
    }
    told.clear()
    await run_tasks(Curious(), [0])
    assert set(told[0]) == {"AGL_ROLLOUT_ID", "AGL_ATTEMPT_ID", "AGL_MODE"}


async def test_what_an_agent_logs_is_kept_with_its_attempt(run_tasks, spans_of) -> None:
    def agent(task):
        logging.getLogger("mine").warning("working on %s", task)
        return 1.0

    for rollout in await run_tasks(agent, [1, 2]):
        (kept,) = [span for span in await spans_of(rollout) if span.name == "agl.output"]
        assert kept.attributes["agl.output.stream"] == "log"
        assert kept.attributes["agl.output.text"].endswith(f"WARNING mine: working on {rollout.task}\n")


async def test_a_reward_that_another_process_sent_counts_where_there_is_no_other(run_tasks, store) -> None:
    class Sends:
        name = "sends"

        async def run(self, assignment):
            ids = {"rollout_id": assignment.rollout.rollout_id, "attempt_id": assignment.attempt.attempt_id}
            for number, value in enumerate([0.25, 0.75]):
                await store.add_span(
                    agl.Span(
                        span_id=f"{number:016x}",
                        trace_id="1" * 32,
                        name="agl.reward",
                        start_time_ns=1,
                        attributes={"agl.reward.value": value, "agl.reward.dimension.a": value},
                        **ids,
                    )
                )
            return assignment.rollout.task

    sent, returned = await run_tasks(Sends(), [None, 2.0], store_url="http://store:1")
    assert (sent.reward, sent.reward_dimensions) == (0.75, {"a": 0.75})
    assert returned.reward == 2.0


async def test_what_an_agent_returned_is_kept_also_where_its_grader_fails(run_tasks, spans_of) -> None:
    async def solver(task):
        return {"answer": task}

    def grade(result):
        raise ValueError("no opinion")

    (failed,) = await run_tasks(solver, ["42"], grader=grade)
    assert failed.status == "failed"
    *_, root = await spans_of(failed)
    assert root.attributes["agl.result"] == '{"answer": "42"}'


async def test_a_result_too_large_to_keep_is_left_out(run_tasks, spans_of) -> None:
    (rollout,) = await run_tasks(lambda task: "x" * 1_000_001, [0], grader=lambda result: 1.0)
    *_, root = await spans_of(rollout)
    assert rollout.reward == 1.0
    assert "agl.result" not in root.attributes


async def test_the_verdict_is_told_from_rewards_emitted_on_the_way(run_tasks, spans_of) -> None:
    def agent(task):
        agl.emit_reward(0.25)
        return 1.0

    (rollout,) = await run_tasks(agent, [0])
    emitted, returned, _ = await spans_of(rollout)
    assert emitted.attributes == {"agl.reward.value": 0.25}
    assert returned.attributes == {"agl.reward.value": 1.0, "agl.reward.returned": True}
