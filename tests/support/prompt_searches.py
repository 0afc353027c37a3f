"""Searches of tests: a real store, a worker that rewards by the prompt, an optimizer model that is a function."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
from run_contexts import Notebook, context_of
from scripted_worker import Script

from agl.algorithms.base import RunContext
from agl.algorithms.prompts.archive import Archive
from agl.algorithms.prompts.asking import OptimizerModel
from agl.algorithms.prompts.candidate import first_candidate
from agl.algorithms.prompts.markup import Questions
from agl.algorithms.prompts.ongoing import Search
from agl.algorithms.prompts.scoring import Scorer
from agl.algorithms.prompts.search import PromptSearch
from agl.algorithms.prompts.selection import split_tasks
from agl.store.base import LightningStore
from agl.types import AttemptedRollout, PromptTemplate, Span, SpanStatus
from agl.types import attributes as key

START = "Answer {task}"
_PATH = re.compile(r"/rollout/([^/]+)/attempt/([^/]+)/v1/chat/completions")

Reply = str | Mapping[str, Any] | httpx.Response | Exception
"""The answer's text, its message, a response as it is (not recorded), or what the request raises."""


def proxied_call(
    rollout_id: str, attempt_id: str, asked: Any = (), answered: str = "ok", **attributes: Any
) -> Span:
    """A call as the proxy records it: 10 tokens in, 5 out."""
    return Span(
        span_id=f"{abs(hash((rollout_id, attempt_id, json.dumps(asked), answered))):016x}"[:16],
        trace_id=attempt_id.rjust(32, "0")[-32:],
        name="chat policy",
        kind="client",
        status=SpanStatus(code="ok"),
        resource={"service.name": "agl.proxy"},
        attributes={
            key.MISSING_IDS_CAUSE: "not asked for",
            key.INPUT_MESSAGES: json.dumps(asked),
            key.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "content": answered}]),
            key.INPUT_TOKENS: 10,
            key.OUTPUT_TOKENS: 5,
            **attributes,
        },
        start_time_ns=1,
        rollout_id=rollout_id,
        attempt_id=attempt_id,
    )


@dataclass
class ScriptedOptimizer(httpx.AsyncBaseTransport):
    """The proxy as questions see it: answers by a function, and records what it answered."""

    store: LightningStore
    reply: Callable[[str, Mapping[str, Any]], Reply]
    """Of the rollout's id and the request."""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        found = _PATH.search(request.url.path)
        assert found is not None
        rollout_id, attempt_id = map(unquote, found.groups())
        body = json.loads(await request.aread())
        self.asked.append((rollout_id, body))
        reply = self.reply(rollout_id, body)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, httpx.Response):
            return reply
        message = {"role": "assistant", **({"content": reply} if isinstance(reply, str) else reply)}
        reason = message.pop("finish_reason", "stop")
        await self.store.add_many_spans(
            [proxied_call(rollout_id, attempt_id, body["messages"], str(message.get("content") or ""))]
        )
        return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": reason}]})


def plain_question(path: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A question without POML: which file, and the values."""
    return [{"role": "user", "content": json.dumps({"file": path.name, **values})}]


@dataclass(kw_only=True)
class Bench:
    """A search and all that is around it."""

    search: Search
    notebook: Notebook
    optimizer: ScriptedOptimizer
    claimed: list[AttemptedRollout]
    context: RunContext


@asynccontextmanager
async def bench(
    store: LightningStore,
    run_dir: Path,
    settings: PromptSearch,
    *,
    script: Callable[[str, int], Script],
    reply: Callable[[str, Mapping[str, Any]], Reply] = lambda _id, _body: "",
    template: str = START,
    num_tasks: int = 12,
    resume: bool = False,
    clock: Callable[[], float] = lambda: 0.0,
    **more_prompts: str,
) -> AsyncGenerator[Bench]:
    """A search over ``prompt`` (and ``more_prompts``), ready to begin.

    ``script`` says how a rollout goes, by the prompt and the task. Of several prompts the text is that of all,
    joined by ``|``.
    """
    resources = {
        name: PromptTemplate(template=text) for name, text in {"prompt": template, **more_prompts}.items()
    }
    known: dict[str, str] = {}

    def script_of(claim: AttemptedRollout) -> Script:
        named = claim.rollout.resources_id
        assert named is not None
        return script(known.get(named, ""), claim.rollout.task)

    async with context_of(store, run_dir, script_of, train_tasks=tuple(range(num_tasks)), resume=resume) as (
        context,
        notebook,
        _,
        claimed,
    ):
        context = replace(context, resources=resources)
        publish = context.policy.resources_id

        async def remembered(purpose: str, sampling: Mapping[str, Any], **given: Any) -> str:
            resources_id = await publish(purpose, sampling, **given)
            prompts = given.get("resources") or {}
            known[resources_id] = "|".join(prompt.template for prompt in prompts.values())
            return resources_id

        context.policy.resources_id = remembered  # type: ignore[method-assign]
        optimizer = ScriptedOptimizer(store, reply)
        feedback, selection = split_tasks(num_tasks, settings.val_batch_size, context.seed)
        async with OptimizerModel(
            context,
            model=settings.optimizer_model,
            sampling=settings.optimizer_sampling(),
            timeout_seconds=settings.optimizer_timeout_seconds,
            transport=optimizer,
        ) as model:
            search = Search(
                context=context,
                settings=settings,
                scorer=Scorer(context, sampling=settings.agent_sampling(), config=settings.rollout_config()),
                optimizer=model,
                start=first_candidate(resources, settings.prompts),
                feedback=feedback,
                selection=selection,
                archive=Archive(run_dir),
                questions=Questions(render=plain_question),
                clock=clock,
            )
            yield Bench(
                search=search, notebook=notebook, optimizer=optimizer, claimed=claimed, context=context
            )
