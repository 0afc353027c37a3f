"""OptimizerModel: the model that criticises and writes prompts, asked through the proxy and recorded like an agent.

Each question is a rollout of its own with an id of the search's choice. So its calls are accounted for, a person can
read it, and a resumed run gets its answer from the store and pays for nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast

import httpx

from agl.adapters.transcript import messages_from_spans
from agl.algorithms.base import RunContext
from agl.algorithms.prompts.endings import OptimizerDownError
from agl.algorithms.prompts.spending import Spent, spent_in
from agl.algorithms.sampling import rollout_seed
from agl.errors import ConflictError, NotFoundError
from agl.evaluation.rollouts import ASKED, answers, set_aside, spans_of_rollout
from agl.types import LLM, ErrorInfo, Rollout, RolloutConfig, RolloutRequest

log = logging.getLogger(__name__)

MAX_OUTAGES = 3
"""Questions in a row that got no answer at all before the model is taken for dead."""
GRACE_SECONDS = 10.0
"""Behind the longest wait the store takes the question for lost: whoever asked is gone."""
_LIMITS = httpx.Limits(max_connections=64)
_OUTAGES = ("http_error", "timeout", "unreachable")
_SHOWN = 300


class AskFailedError(Exception):
    """A question got nothing that can be used.

    Args:
        cause: a short, countable name: ``empty``, ``truncated``, ``refused``, ``http_error``, ``timeout``,
            ``unreachable``, ``no_answer`` (not the wire format).
    """

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


Put = Callable[[], Awaitable[Rollout]]
"""Puts a question to the model and returns how it ended."""


async def put_at_once(put: Put) -> Rollout:
    """Put a question without a word."""
    return await put()


class OptimizerModel:
    """Asks models that the proxy has. An async context manager.

    Args:
        context: the run's parts.
        model: who answers where a question names none; None is the policy itself. A name that no endpoint of the proxy
            takes goes to the engine's server under that name.
        sampling: temperature, max_tokens and the like, of every question.
        timeout_seconds: the longest wait for an answer.
        transport: carries the requests; None is the network.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        model: str | None,
        sampling: Mapping[str, Any],
        timeout_seconds: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.spent = Spent()
        self.failures: Counter[str] = Counter()
        """Of questions, by cause."""
        self.num_asked = self.num_open = 0
        self._context, self._model, self._sampling = context, model, dict(sampling)
        self._timeout = timeout_seconds
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, limits=_LIMITS, transport=transport)
        self._outages: defaultdict[str | None, list[Rollout]] = defaultdict(list)
        self._heard: set[str | None] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def ask(
        self,
        ask_id: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        model: str | None = None,
        around: Callable[[Put], Awaitable[Rollout]] = put_at_once,
    ) -> str:
        """Return the model's whole answer.

        Args:
            ask_id: names the question within the run; the same question under the same id is answered from the store.
            messages: in OpenAI's shape.
            model: who answers; None is the model of all questions.
            around: calls what puts the question to the model; not called where the store has the answer.

        Raises:
            AskFailedError: no answer, or one that cannot be used; counted in ``failures``.
            OptimizerDownError: and so were the questions before.
        """
        model = model or self._model
        request = RolloutRequest(
            task={"model": model, "messages": [dict(message) for message in messages]},
            run_id=self._context.run_id,
            config=RolloutConfig(timeout_seconds=self._timeout + GRACE_SECONDS),
            metadata={
                ASKED: True,
                "seed": rollout_seed(self._context.seed, f"ask-{ask_id}"),
                "sampling": self._sampling,
            },
        )
        self.num_open += 1
        try:
            rollout = await self._asked(f"{self._context.prefix}-ask-{ask_id}", request, around)
        finally:
            self.num_open -= 1
        spans = await spans_of_rollout(self._context.store, rollout.rollout_id)
        self.num_asked += 1
        self.spent += spent_in(rollout, spans, is_agent=False)
        if rollout.status == "succeeded":
            self._outages[model].clear()
            self._heard.add(model)
            return _text_of(messages_from_spans(spans)[-1])
        await self._count_failure(rollout, model)
        error = rollout.error or ErrorInfo(cause="cancelled")
        raise AskFailedError(error.cause, error.message)

    async def _asked(
        self, rollout_id: str, request: RolloutRequest, around: Callable[[Put], Awaitable[Rollout]]
    ) -> Rollout:
        """The question as it ended: in the store, else put now under the first id that is free."""
        while True:
            try:
                known = await self._context.store.get_rollout_by_id(rollout_id)
            except NotFoundError:
                break
            if known.finished_at is not None and answers(known, request):
                return known
            rollout_id = f"{rollout_id}-again"  # asked otherwise, or by a process that was ended
        named = request.model_copy(update={"rollout_id": rollout_id})
        return await around(lambda: self._put(named))

    async def _put(self, request: RolloutRequest) -> Rollout:
        store, policy = self._context.store, self._context.policy
        model, messages = request.task["model"], request.task["messages"]
        resources_id = await policy.resources_id(
            f"optimizer-{model or 'policy'}", self._sampling, model=model
        )
        claim = await store.start_rollout(request.model_copy(update={"resources_id": resources_id}))
        ids = (claim.rollout.rollout_id, claim.attempt.attempt_id)
        llm = policy.llm_of_attempt(*ids, model=model, sampling=self._sampling)
        error = await self._answer(llm, {**self._sampling, "model": llm.model, "messages": messages})
        with suppress(
            ConflictError
        ):  # this process stood still for so long that the store gave the question up
            await store.update_attempt(*ids, status="failed" if error else "succeeded", error=error)
        return await store.get_rollout_by_id(claim.rollout.rollout_id)

    async def _answer(self, llm: LLM, body: Mapping[str, Any]) -> ErrorInfo | None:
        """Put a question to the proxy, which records the answer; return why that cannot be used, None where it can."""
        try:
            async with asyncio.timeout(
                self._timeout
            ):  # httpx limits single reads only, which a slow trickle passes
                response = await self._client.post(
                    f"{llm.base_url}/chat/completions",
                    json=body,
                    headers={"Authorization": f"Bearer {llm.api_key}"},
                )
        except TimeoutError:
            return ErrorInfo(cause="timeout", message=f"no answer within {self._timeout:g} s")
        except httpx.HTTPError as failed:
            return ErrorInfo(cause="unreachable", message=f"{type(failed).__name__}: {failed}")
        return _error_in(response)

    async def _count_failure(self, rollout: Rollout, model: str | None) -> None:
        cause = rollout.error.cause if rollout.error else "cancelled"
        message = rollout.error.message if rollout.error else ""
        outages = self._outages[model]
        self.failures[cause] += 1
        log.warning("the optimizer model gave nothing for %s: %s: %s", rollout.rollout_id, cause, message)
        if cause not in _OUTAGES:
            outages.clear()
            self._heard.add(model)
            return
        outages.append(rollout)
        if len(outages) >= MAX_OUTAGES:
            await self._refuse_outages(model, f"{len(outages)} questions in a row")

    async def check_heard(self) -> None:
        """Check, at the end, that every model that was asked has said something.

        Raises:
            OptimizerDownError: one has not; its questions, too few to stop the search before, are asked again when the
                run is resumed.
        """
        for model, outages in self._outages.items():
            if outages and model not in self._heard:
                await self._refuse_outages(model, f"any of {len(outages)} questions")

    async def _refuse_outages(self, model: str | None, what: str) -> None:
        outages = self._outages[model]
        await set_aside(self._context.store, outages)  # so that a resumed run asks again
        error = outages[-1].error or ErrorInfo(cause="cancelled")
        raise OptimizerDownError(
            f"the optimizer model ({model or 'the policy itself'}) gave no answer to {what};"
            f" the last: {error.cause}: {error.message}"
        )


def _error_in(response: httpx.Response) -> ErrorInfo | None:
    """Why an answer cannot be used, None where it can."""
    if response.status_code != 200:
        return ErrorInfo(cause="http_error", message=f"{response.status_code}: {response.text[:_SHOWN]}")
    try:
        choice = response.json()["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        text = _text_of(message)
    except (ValueError, LookupError, TypeError, AttributeError):
        return ErrorInfo(cause="no_answer", message=f"not a chat completion: {response.text[:_SHOWN]}")
    if reason == "content_filter" or message.get("refusal"):
        return ErrorInfo(cause="refused", message=str(message.get("refusal") or text)[:_SHOWN])
    if reason == "length":
        return ErrorInfo(cause="truncated", message="the answer reached algorithm.optimizer_max_tokens")
    if not text.strip():
        return ErrorInfo(cause="empty", message="the answer has no text")
    return None


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = cast("list[Mapping[str, Any]]", content)
        return "".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""
