"""OptimizerModel: the model that criticises and writes prompts, asked through the proxy and recorded like an agent.

Each question is a rollout of its own with an id of the search's choice. So its calls are accounted for, a person can
read it, and a resumed run gets its answer from the store and pays for nothing twice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast

import httpx

from agl.adapters.transcript import messages_from_spans
from agl.algorithms.base import RunContext
from agl.algorithms.prompts.spending import Spent, spent_in
from agl.algorithms.sampling import rollout_seed
from agl.errors import ConflictError, NotFoundError
from agl.evaluation.rollouts import ABANDONED, set_aside, spans_of_rollout
from agl.types import AttemptedRollout, ErrorInfo, Json, Rollout, RolloutConfig, RolloutRequest

log = logging.getLogger(__name__)

MAX_OUTAGES = 3
"""Questions in a row that got no answer at all before the model is taken for dead."""
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


class OptimizerDownError(Exception):
    """The model gave no answer several times in a row: to go on would burn the budget for nothing."""


class OptimizerModel:
    """Asks one model. An async context manager.

    Args:
        context: the run's parts.
        model: any that the proxy has; None is the policy itself.
        sampling: temperature, max_tokens and the like, of every question.
        timeout_seconds: the longest wait for an answer.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        model: str | None,
        sampling: Mapping[str, Any],
        timeout_seconds: float,
    ) -> None:
        self.spent = Spent()
        self.failures: Counter[str] = Counter()
        """Of questions, by cause."""
        self.num_asked = 0
        self._context, self._model, self._sampling = context, model, dict(sampling)
        self._timeout = timeout_seconds
        self._client = httpx.AsyncClient(timeout=timeout_seconds, trust_env=False)
        self._outages: list[Rollout] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def ask(self, ask_id: str, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the model's whole answer.

        Args:
            ask_id: names the question within the run; the same question under the same id is answered from the store.
            messages: in OpenAI's shape.

        Raises:
            AskFailedError: no answer, or one that cannot be used; counted in ``failures``.
            OptimizerDownError: and so were the questions before.
        """
        rollout_id = f"{self._context.run_id}-ask-{ask_id}"
        task = {"model": self._model, "messages": [dict(message) for message in messages]}
        rollout = await self._known(rollout_id, task)
        if rollout is None:
            rollout = await self._put(rollout_id, task)
        spans = await spans_of_rollout(self._context.store, rollout.rollout_id)
        self.num_asked += 1
        self.spent += spent_in(rollout, spans, is_agent=False)
        if rollout.status == "succeeded":
            self._outages.clear()
            return _text_of(messages_from_spans(spans)[-1])
        await self._count_failure(rollout)
        error = rollout.error or ErrorInfo(cause="cancelled")
        raise AskFailedError(error.cause, error.message)

    async def _known(self, rollout_id: str, task: Json) -> Rollout | None:
        """The question as it was asked before, if it was and ended."""
        with suppress(NotFoundError):
            rollout = await self._context.store.get_rollout_by_id(rollout_id)
            if rollout.task == task and ABANDONED not in rollout.metadata and rollout.finished_at is not None:
                return rollout
        return None

    async def _put(self, rollout_id: str, task: Mapping[str, Any]) -> Rollout:
        claim = await self._start(rollout_id, task)
        ids = (claim.rollout.rollout_id, claim.attempt.attempt_id)
        llm = self._context.policy.llm_of_attempt(*ids, model=self._model, sampling=self._sampling)
        body = {**self._sampling, "model": llm.model, "messages": task["messages"]}
        try:
            response = await self._client.post(
                f"{llm.base_url}/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {llm.api_key}"},
            )
            error = _error_in(response)
        except httpx.TimeoutException:
            error = ErrorInfo(cause="timeout", message=f"no answer within {self._timeout:g} s")
        except httpx.HTTPError as failed:
            error = ErrorInfo(cause="unreachable", message=f"{type(failed).__name__}: {failed}")
        done = await self._context.store.update_attempt(
            *ids, status="failed" if error else "succeeded", error=error
        )
        return done.rollout

    async def _start(self, rollout_id: str, task: Json) -> AttemptedRollout:
        while True:
            request = RolloutRequest(
                task=task,
                rollout_id=rollout_id,
                run_id=self._context.run_id,
                resources_id=await self._context.policy.resources_id("optimizer", self._sampling),
                config=RolloutConfig(timeout_seconds=self._timeout + 10),
                metadata={"optimizer": True, "seed": rollout_seed(self._context.seed, rollout_id)},
            )
            try:
                return await self._context.store.start_rollout(request)
            except ConflictError:  # asked before under this id: by a process that was ended, or otherwise
                rollout_id = f"{rollout_id}-again"

    async def _count_failure(self, rollout: Rollout) -> None:
        cause = rollout.error.cause if rollout.error else "cancelled"
        message = rollout.error.message if rollout.error else ""
        self.failures[cause] += 1
        log.warning("the optimizer model gave nothing for %s: %s: %s", rollout.rollout_id, cause, message)
        if cause not in _OUTAGES:
            self._outages.clear()
            return
        self._outages.append(rollout)
        if len(self._outages) >= MAX_OUTAGES:
            await set_aside(self._context.store, self._outages)  # so that a resumed run asks again
            name = self._model or "the policy itself"
            raise OptimizerDownError(
                f"the optimizer model ({name}) gave no answer to {len(self._outages)} questions in a row;"
                f" the last: {cause}: {message}"
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
