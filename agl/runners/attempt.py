"""Execute one attempt: the one place where what an agent raises becomes data.

Whatever happens to the agent ends in an ``Outcome``: a reward, no reward, or an error with its cause. Never a zero.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import StatusCode

from agl.agents.base import Agent, Answer, Assignment, MissingResourceError
from agl.errors import AgentError
from agl.runners.grading import Grader
from agl.runners.hooks import HookCalls
from agl.runners.outcome import STOPPED, Outcome
from agl.runners.resources import ResourceShelf
from agl.runners.retry import when_available
from agl.store.base import SpanLog
from agl.tracing.context import AttemptContext
from agl.tracing.emit import record_reward
from agl.tracing.plain import clean_text, json_text
from agl.tracing.reward import Reward, reward_from_attributes, reward_from_value
from agl.tracing.tracer import Tracer
from agl.types import AttemptedRollout, ErrorInfo, Span, SpanQuery
from agl.types.attributes import AGENT, ERROR_TYPE, RESULT, REWARD_RETURNED, REWARD_SPAN
from agl.types.tokens import is_scoped, scoped_token

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
"""How long a cancelled agent may take to clean up before it is left behind."""
HOOK_SECONDS = 30.0
"""How long the hooks at an attempt's end may take; they hold its place in the runner."""
MAX_MESSAGE, MAX_TRACEBACK = 2_000, 50_000
"""Characters kept of an error; of a traceback its end, where the cause is."""
MAX_RESULT = 1_000_000
"""Characters of an agent's result as JSON; a larger one is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What every attempt of a runner works with.

    Args:
        agent: what is run.
        store: takes and gives the attempts' spans.
        resources: what the agents are given.
        tracer: records the attempts.
        grader: gives the reward where the agent does not.
        hooks: are called around each attempt.
        store_url: where programs outside of this process reach the store; None where they cannot.
        store_token: the store's own token, of which the tokens of attempts are made; no agent ever gets it.
    """

    agent: Agent
    store: SpanLog
    resources: ResourceShelf
    tracer: Tracer
    grader: Grader | None = None
    hooks: HookCalls = field(default_factory=HookCalls)
    store_url: str | None = None
    store_token: str | None = field(default=None, repr=False)


async def execute_attempt(claim: AttemptedRollout, workplace: Workplace) -> Outcome:
    """Run the agent on a claimed rollout, within its time limit, and return how it ended.

    When the caller is cancelled the agent is stopped first. The attempt's spans are ended, not yet flushed.
    """
    rollout, attempt, agent = claim.rollout, claim.attempt, workplace.agent
    with workplace.tracer.attempt(
        rollout.rollout_id, attempt.attempt_id, attributes={AGENT: agent.name, "agl.mode": rollout.mode}
    ) as (context, root):
        where = f"agl rollout {rollout.rollout_id} attempt {attempt.attempt_id}"
        running = asyncio.create_task(_run(claim, workplace, context, root), name=where)
        limit = rollout.config.timeout_seconds
        try:
            await asyncio.wait((running,), timeout=limit)
        except asyncio.CancelledError:
            await _stop(running)
            await _end("on_trace_end", claim, workplace, STOPPED, root)
            _mark(root, STOPPED)
            raise
        if running.done():
            outcome = _outcome_of(running, agent.name)
        else:
            await _stop(running)
            message = f"{agent.name} did not finish within timeout_seconds={limit:g}"
            outcome = Outcome(status="timeout", error=ErrorInfo(cause="timeout", message=message))
        num_rewards = len(context.rewards)
        await _end("on_trace_end", claim, workplace, outcome, root)
        if outcome.status == "succeeded" and len(context.rewards) > num_rewards:
            last = context.rewards[-1]
            outcome = replace(outcome, reward=last.value, dimensions=last.dimensions)
        _mark(root, outcome)
    await _end("on_rollout_end", claim, workplace, outcome, None)
    return outcome


async def _run(
    claim: AttemptedRollout, workplace: Workplace, context: AttemptContext, root: OtelSpan
) -> Outcome:
    """The error boundary around the user's code."""
    try:
        await workplace.hooks.start("on_rollout_start", workplace.agent, claim)
        resources = await workplace.resources.resources_for(claim)
        assignment = Assignment(
            rollout=claim.rollout,
            attempt=claim.attempt,
            resources=resources,
            environment=environment_of(claim, workplace),
        )
        await workplace.hooks.start("on_trace_start", workplace.agent, claim)
        result = await workplace.agent.run(assignment)
        name = workplace.agent.name
        said = result if isinstance(result, Answer) else Answer(value=result, reward=result)
        _record_result(root, said.value)
        result = said.reward
        if workplace.grader is not None:
            result = await workplace.grader.grade(assignment, said.value, lambda: _spans(claim, workplace))
            name = f"the grader {workplace.grader.name}"
        reward = _reward(result, context, name)
        if reward is None and workplace.store_url is not None:
            reward = await _emitted_elsewhere(claim, workplace)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - the boundary of an attempt: recorded on it
        return Outcome(status="failed", error=error_info(error))
    if reward is None:
        return Outcome(status="succeeded")
    return Outcome(status="succeeded", reward=reward.value, dimensions=reward.dimensions)


def environment_of(claim: AttemptedRollout, workplace: Workplace) -> dict[str, str]:
    """Return what a program outside of this process needs to work on this attempt."""
    rollout_id, attempt_id = claim.rollout.rollout_id, claim.attempt.attempt_id
    environment = {"AGL_ROLLOUT_ID": rollout_id, "AGL_ATTEMPT_ID": attempt_id, "AGL_MODE": claim.rollout.mode}
    if claim.rollout.run_id is not None:
        environment["AGL_RUN_ID"] = claim.rollout.run_id
    if workplace.store_url is not None:
        environment["AGL_STORE_URL"] = workplace.store_url
        token = workplace.store_token
        if token is not None:
            scoped = token if is_scoped(token) else scoped_token(token, rollout_id, attempt_id)
            environment["AGL_STORE_TOKEN"] = scoped
    return environment


def error_info(error: BaseException) -> ErrorInfo:
    """Return an exception as the record of an attempt: its class is the cause."""
    cause = "missing_resource" if isinstance(error, MissingResourceError) else type(error).__name__
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001 - an error that cannot say what it is; recorded as such
        message = f"(its message cannot be shown: {type(second).__name__})"
    trace = clean_text("".join(traceback.format_exception(error)))
    return ErrorInfo(cause=cause, message=clean_text(message)[:MAX_MESSAGE], traceback=trace[-MAX_TRACEBACK:])


def _reward(result: object, context: AttemptContext, name: str) -> Reward | None:
    """The reward that was returned, else the last one emitted, else none."""
    if result is None:
        return context.rewards[-1] if context.rewards else None
    try:
        reward = reward_from_value(result)
    except (TypeError, ValueError) as error:
        raise AgentError(
            f"{name} returned something that is no reward: {error}. "
            "Return a number, a dict of numbers, or None to use the last emitted reward"
        ) from error
    record_reward(context, reward, attributes={REWARD_RETURNED: True})
    return reward


def _record_result(root: OtelSpan, value: object) -> None:
    """Keep what the agent returned, so that another grader can be asked later; too large a value is not kept."""
    text = json_text(value)
    if len(text) <= MAX_RESULT:
        root.set_attribute(RESULT, text)


def _outcome_of(running: asyncio.Task[Outcome], name: str) -> Outcome:
    if running.cancelled():
        message = f"{name} was cancelled by itself or by a library that it uses, not by the runner"
        return Outcome(status="failed", error=ErrorInfo(cause="CancelledError", message=message))
    return running.result()


async def _stop(running: asyncio.Task[Outcome]) -> None:
    """Cancel the agent's task and wait a moment for its clean-up; one that does not obey is left behind, and logged."""
    running.cancel()
    await asyncio.wait((running,), timeout=STOP_SECONDS)
    if not running.done():
        log.error(
            "%s ignores its cancellation; it is left running and holds what it holds", running.get_name()
        )


def _mark(root: OtelSpan, outcome: Outcome) -> None:
    """Write the end of the attempt onto its root span."""
    if outcome.error is None:
        root.set_status(StatusCode.OK)
        return
    root.set_attribute(ERROR_TYPE, outcome.error.cause)
    root.set_status(StatusCode.ERROR, f"{outcome.error.cause}: {outcome.error.message}")
    if outcome.error.traceback is not None:
        details = {
            "exception.type": outcome.error.cause,
            "exception.message": outcome.error.message,
            "exception.stacktrace": outcome.error.traceback,
        }
        root.add_event("exception", details)


async def _end(
    moment: str, claim: AttemptedRollout, workplace: Workplace, outcome: Outcome, root: OtelSpan | None
) -> None:
    """Call the hooks that come at an end; what they raise changes nothing, and is recorded."""
    if not workplace.hooks.has(moment):
        return
    limit = STOP_SECONDS if outcome is STOPPED else HOOK_SECONDS
    ending = asyncio.create_task(
        workplace.hooks.end(moment, workplace.agent, claim, outcome, lambda: _spans(claim, workplace)),
        name=f"agl {moment} {claim.attempt.attempt_id}",
    )
    try:
        await asyncio.wait((ending,), timeout=limit)
    finally:
        if not ending.done():
            ending.cancel()
    if not ending.done():
        log.error(
            "%s of rollout %s did not end within %g s: it is stopped", moment, claim.rollout.rollout_id, limit
        )
        return
    for name, error in ending.result():
        log.error("the hook %s failed on rollout %s", name, claim.rollout.rollout_id, exc_info=error)
        if root is not None:
            root.record_exception(error, {"agl.hook": name})


async def _emitted_elsewhere(claim: AttemptedRollout, workplace: Workplace) -> Reward | None:
    """The last reward that a process which the agent started sent to the store, if any."""
    spans = await _spans(claim, workplace, name=REWARD_SPAN)
    return reward_from_attributes(spans[-1].attributes) if spans else None


async def _spans(claim: AttemptedRollout, workplace: Workplace, *, name: str | None = None) -> Sequence[Span]:
    """The attempt's spans so far, all or those of a name."""
    await workplace.tracer.flush()
    rollout_id, attempt_id = claim.rollout.rollout_id, claim.attempt.attempt_id
    spans: list[Span] = []
    cursor: str | None = None
    while True:
        query = SpanQuery(rollout_id=rollout_id, attempt_id=attempt_id, name=name, cursor=cursor)
        page = await when_available(
            lambda query=query: workplace.store.query_spans(query), what=f"reading spans of {rollout_id}"
        )
        spans.extend(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return spans
