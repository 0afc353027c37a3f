"""An agent on some tasks: the runner, proxy and engine of training, and nothing that learns."""

from contextlib import asynccontextmanager

import pytest

from agl.errors import ConfigError
from agl.launch.tasks import TaskRun, result_from
from agl.proxy import ProxyServer
from agl.runners.remote import RemoteRunners
from agl.store.sqlite import InMemoryLightningStore
from agl.types import LLM, ModelEndpoint, PromptTemplate, Rollout, Span


class FakeProxy:
    """Serves without a socket."""

    def __init__(self, **endpoints: ModelEndpoint) -> None:
        self.endpoints = endpoints

    @asynccontextmanager
    async def serving(self, store, upstream):
        yield ProxyServer(url="http://proxy:1", api_key="none")


async def test_results_come_in_the_order_of_the_tasks_and_a_failure_is_one_of_them() -> None:
    async def agent(task):
        if task == 2:
            raise ValueError("two")
        return float(task)

    progress: list[tuple[int, int]] = []
    task_run = TaskRun(agent=agent, store=InMemoryLightningStore(), proxy=FakeProxy())
    results = await task_run.run([3, 2, 1], on_progress=lambda *done: progress.append(done))
    assert [result.rollout.reward for result in results] == [3.0, None, 1.0]
    assert results[1].rollout.error.cause == "ValueError"
    assert {result.rollout.mode for result in results} == {"val"}
    assert progress[-1] == (3, 3)
    assert min(result.seconds for result in results) >= 0


async def test_an_agent_gets_the_resources_and_the_first_endpoint_as_its_model() -> None:
    seen: list[object] = []

    async def agent(task, llm: LLM, prompt_template: PromptTemplate):
        seen.append((llm.model, llm.base_url.split("/rollout/")[0], prompt_template.template))

    endpoint = ModelEndpoint(model="gpt-5", urls=("https://host/v1",))
    task_run = TaskRun(
        agent=agent,
        store=InMemoryLightningStore(),
        proxy=FakeProxy(judge=endpoint, other=endpoint),
        resources={"prompt": PromptTemplate(template="hello")},
    )
    (result,) = await task_run.run([0])
    assert result.rollout.status == "succeeded", result.rollout.error
    assert seen == [("judge", "http://proxy:1", "hello")]


async def test_an_agent_without_its_model_fails_and_says_so() -> None:
    async def agent(task, llm: LLM): ...

    task_run = TaskRun(agent=agent, store=InMemoryLightningStore(), proxy=FakeProxy())
    (result,) = await task_run.run([0])
    assert result.rollout.error.cause == "missing_resource"


def test_runners_elsewhere_are_refused() -> None:
    with pytest.raises(ConfigError, match="runner=remote runs nothing"):
        TaskRun(agent=print, store=InMemoryLightningStore(), runner=RemoteRunners())


def test_calls_and_tokens_are_those_of_recorded_calls() -> None:
    rollout = Rollout(rollout_id="r", task=0, created_at=0.0, started_at=1.0, finished_at=3.5)
    call = {"agl.missing_ids_cause": "x", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}

    def span(number: int, name: str, attributes: dict[str, object]) -> Span:
        return Span(
            span_id=f"{number:016x}",
            trace_id="a" * 32,
            name=name,
            attributes=attributes,
            start_time_ns=1,
            rollout_id="r",
            attempt_id="a",
        )

    spans = [
        span(1, "chat m", call),
        span(2, "chat m", call),
        span(3, "tool", {"gen_ai.usage.input_tokens": 99}),
    ]
    result = result_from(rollout, spans)
    assert (result.calls, result.tokens, result.seconds) == (2, 30, 2.5)
