"""Calls: carries out the calls of all attempts: looks up, asks the upstream, records durably, and only then answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import orjson

from agl.errors import InferenceError, StoreError
from agl.proxy.admission import Admission, Caller, Passage
from agl.proxy.attempts import AttemptDirectory, llm_of_call, sampling_of
from agl.proxy.canonical import ReadingAnswer, checked_answer, upstream_chat, upstream_error
from agl.proxy.dialects.base import ClientRequest, Dialect, Memory
from agl.proxy.exchange import EVENTS, JSON, Delivery
from agl.proxy.recalls import recall
from agl.proxy.record import Call, Ended, answered_span, embeddings_span, failed_span, refused_embeddings_span
from agl.proxy.refusal import CallRefusedError
from agl.proxy.repeats import CallIdentity, Outcome, RecentCall, RecentCalls
from agl.proxy.routes import Address, Route
from agl.proxy.side_calls import embedded, num_prompt_tokens
from agl.proxy.streams import StreamedAnswer
from agl.proxy.upstream import NATIVE, UPSTREAM, CallContext, RoutedUpstream, Upstream
from agl.proxy.writer import SpanWriter
from agl.store.base import LightningStore
from agl.types import LLM, NamedResources, ProxyLLM, Span

log = logging.getLogger(__name__)

_TEXT = b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """A call as the client asked for it.

    Args:
        address: whose call it is.
        route: the endpoint and its wire format.
        request: what it asks for.
        headers: what a provider of the client's own format needs of the request's headers.
        seconds: how long the client waits.
        traceparent: W3C trace context.
        delivery: where a streamed answer goes.
    """

    address: Address
    route: Route
    request: ClientRequest
    headers: Mapping[str, str]
    seconds: float
    traceparent: str | None
    delivery: Delivery | None

    @property
    def dialect(self) -> Dialect:
        """The client's wire format."""
        return self.route.dialect


@dataclass(slots=True, kw_only=True)
class _Dispatched:
    """A call on its way: what was asked of the upstream, and what came back so far."""

    asked: AskedCall
    request: ClientRequest
    """With what the dialect remembered for it."""
    memory: Memory | None
    call: Call
    context: CallContext | None
    received: StreamedAnswer
    caller: Caller
    passage: Passage | None = None
    """None until it is admitted."""
    first_chunk_ns: int | None = None


class Calls:
    """Performs calls with one upstream and one store."""

    def __init__(
        self,
        store: LightningStore,
        upstream: Upstream | RoutedUpstream,
        *,
        attempts: AttemptDirectory,
        admission: Admission,
        upstream_timeout_seconds: float,
        now_ns: Callable[[], int],
        rng: Random,
    ) -> None:
        self._rng = rng
        self._store = store
        self._admission = admission
        self._upstream = upstream
        self._routed = upstream if isinstance(upstream, RoutedUpstream) else None
        self._upstream_timeout_seconds = upstream_timeout_seconds
        self._now_ns = now_ns
        self._attempts = attempts
        self._writer = SpanWriter(store)
        self._recent = RecentCalls()

    def claim(self, identity: CallIdentity, asked: AskedCall) -> RecentCall:
        """Return the call that this request repeats, else begin a new one.

        Raises:
            CallRefusedError: the idempotency key came with another body before.
        """
        return self._recent.claim(identity, lambda recent: self._perform(recent, asked))

    async def close(self, *, grace_seconds: float) -> None:
        """Let the calls in flight end within the time, cancel the rest, write what is left."""
        in_flight, late = self._recent.in_flight(), set[asyncio.Task[Outcome]]()
        if in_flight:
            _, late = await asyncio.wait(in_flight, timeout=grace_seconds)
        self._writer.hurry()
        for task in late:
            task.cancel()
        if late:
            log.warning("the proxy stops: %d calls were cancelled", len(late))
            await asyncio.wait(late)
        await self._writer.drain()

    async def record(self, outcome: Outcome) -> None:
        """Make the outcome's span durable; it stays ``unrecorded`` when the store does not take it."""
        span: Span | None = outcome.unrecorded
        if span is None:
            return
        try:
            await self._writer.add(span)
        except StoreError as error:
            log.warning("call %s of rollout %s is not recorded: %s", span.span_id, span.rollout_id, error)
        else:
            outcome.unrecorded = None

    async def _perform(self, recent: RecentCall, asked: AskedCall) -> Outcome:
        """Carry out one call: look up, ask, record."""
        sent = await self._dispatched(asked)
        try:
            outcome = await self._ask(recent, sent)
        except asyncio.CancelledError:
            message = "cancelled before the answer was whole: the client left or the proxy stopped"
            await self.record(self._failure(sent, "cancelled", message, status=499))
            raise
        except CallRefusedError as refusal:
            await self.record(self._failure(sent, refusal.code, str(refusal), status=refusal.status))
            raise
        finally:
            if sent.passage is not None:
                sent.passage.close()
        recent.sampled = True
        await self.record(outcome)
        return outcome

    async def _dispatched(self, asked: AskedCall) -> _Dispatched:
        """Look up what the call needs and word what the upstream is asked."""
        address, request, route = asked.address, asked.request, asked.route
        ids = address.rollout_id, address.attempt_id
        resources = await self._attempts.resources_for_call(*ids)
        memory = None
        if route.new_memory is not None:
            memory = self._attempts.memory_of(*ids, route.new_memory)
            await recall(self._store, memory, request, address)
            request = memory.resolved(request)
        if request.native_only is not None and self._routed is None:
            raise request.native_only
        llm, forced = self._forced(address, request.chat["model"], resources)
        seed = self._attempts.seed_of_next_call(*ids)
        chat = request.chat
        if seed is not None and chat.get("seed") is None:
            chat = {**chat, "seed": seed}
        version = self._policy_version()
        if version is None and isinstance(llm, ProxyLLM):
            version = llm.policy_version
        call = Call(
            address=address,
            request=upstream_chat(chat, forced),
            span_id=self._new_span_id(),
            traceparent=asked.traceparent,
            started_ns=self._now_ns(),
            policy_version=version,
            dialect=asked.dialect.name,
            stream=request.stream,
        )
        context = None if self._routed is None else self._context(asked, request, forced)
        return _Dispatched(
            asked=asked,
            request=request,
            memory=memory,
            call=call,
            context=context,
            received=StreamedAnswer(),
            caller=self._attempts.caller(*ids, address.agent),
        )

    def _forced(
        self, address: Address, model: str, resources: NamedResources | None
    ) -> tuple[LLM | ProxyLLM | None, dict[str, Any]]:
        """The resource that a call uses, and the request parameters that are forced on it."""
        routed_to = None
        if self._routed is not None:
            mode = self._attempts.mode_of(address.rollout_id, address.attempt_id)
            routed_to = self._routed.model_of_call(model, agent=address.agent, mode=mode)
        llm = llm_of_call(resources, model, routed_to=routed_to)
        forced = dict(sampling_of(llm))
        target = routed_to or (llm.model if llm is not None else None)
        return llm, forced if target is None else forced | {"model": target}

    def _context(self, asked: AskedCall, request: ClientRequest, forced: Mapping[str, Any]) -> CallContext:
        address = asked.address
        return CallContext(
            rollout_id=address.rollout_id,
            attempt_id=address.attempt_id,
            agent=address.agent,
            mode=self._attempts.mode_of(address.rollout_id, address.attempt_id),
            deadline=asyncio.get_running_loop().time() + asked.seconds,
            dialect=asked.dialect,
            native=request.native,
            native_only=request.native_only,
            forced=forced,
            headers=asked.headers,
        )

    async def num_prompt_tokens(self, asked: AskedCall) -> int:
        """Count the tokens of the prompt that a call would have.

        Raises:
            InferenceError: the upstream's refusal.
            CallRefusedError: the attempt may not call.
        """
        address, request = asked.address, asked.request
        resources = await self._attempts.resources_for_call(address.rollout_id, address.attempt_id)
        _, forced = self._forced(address, request.chat["model"], resources)
        context = self._context(asked, request, forced)
        return await num_prompt_tokens(self._upstream, request.chat | forced, context)

    async def embedded(self, asked: AskedCall) -> bytes:
        """Answer a request for embeddings and record it.

        Raises:
            InferenceError: the upstream's refusal.
            CallRefusedError: the attempt may not call, a budget is used up, or there are no embeddings.
            StoreError: it was answered and could not be recorded.
        """
        address, request = asked.address, asked.request
        await self._attempts.resources_for_call(address.rollout_id, address.attempt_id)
        call = Call(
            address=address,
            request=request.chat,
            span_id=self._new_span_id(),
            traceparent=asked.traceparent,
            started_ns=self._now_ns(),
            policy_version=None,
        )
        caller = self._attempts.caller(address.rollout_id, address.attempt_id, address.agent)
        passage = None
        try:
            passage = await self._admission.admit_embeddings(caller, call)
            answer = await embedded(self._upstream, request.chat, self._context(asked, request, {}))
            with ReadingAnswer():
                body = orjson.dumps({name: value for name, value in answer.items() if name != UPSTREAM})
                span = embeddings_span(call, answer, Ended(ended_ns=self._now_ns()))
                span = self._admission.settled(caller, passage, span, answer)
            await self._writer.add(span)
        except CallRefusedError as refusal:
            span = refused_embeddings_span(
                call, Ended(ended_ns=self._now_ns()), error_type=refusal.code, description=str(refusal)
            )
            await self._writer.add(self._admission.settled(caller, passage, span, None))
            raise
        finally:
            if passage is not None:
                passage.close()
        return body

    async def _ask(self, recent: RecentCall, sent: _Dispatched) -> Outcome:
        """Ask the upstream; the outcome holds the span, not recorded yet."""
        address = sent.call.address
        try:
            async with asyncio.timeout(self._upstream_timeout_seconds):
                sent.passage = await self._admission.admit(sent.caller, sent.call, sent.request.chat)
                answer = await (self._streamed(recent, sent) if sent.request.stream else self._plain(sent))
            with ReadingAnswer():
                return self._answered(sent, answer)
        except (CallRefusedError, StoreError):
            raise
        except InferenceError as error:
            return self._refused_upstream(sent, error)
        except TimeoutError:
            message = f"the call was not answered within {self._upstream_timeout_seconds:g} s"
            return self._failure(sent, "timeout", message, status=504)
        except Exception as error:
            log.exception("the upstream failed on a call of rollout %s", address.rollout_id)
            message = "the model server failed on this request; the proxy's log says why"
            return self._failure(sent, type(error).__name__, message, status=500)

    async def _plain(self, sent: _Dispatched) -> dict[str, Any]:
        request, recorded = sent.call.request, sent.passage and sent.passage.recorded
        if recorded or self._routed is None:
            return checked_answer(await (recorded or self._upstream).complete_chat(request))
        return checked_answer(await self._routed.complete_chat(request, context=sent.context))

    def _chunks(self, sent: _Dispatched) -> AsyncGenerator[dict[str, Any]]:
        request, recorded = sent.call.request, sent.passage and sent.passage.recorded
        if recorded or self._routed is None:
            return (recorded or self._upstream).stream_chat(request)
        return self._routed.stream_chat(request, context=sent.context)

    async def _streamed(self, recent: RecentCall, sent: _Dispatched) -> dict[str, Any]:
        """Hand the chunks on as they come and return the answer that they make."""
        received, delivery, call = sent.received, sent.asked.delivery, sent.call
        num_choices = call.request.get("n") or 1
        chunks = self._chunks(sent)
        try:
            async for chunk in chunks:
                if sent.first_chunk_ns is None:
                    sent.first_chunk_ns = self._now_ns()
                received.add(chunk)
                if not recent.sampled and received.is_finished(num_choices):
                    recent.sampled = True
                if delivery is not None:
                    await delivery.send(chunk, span_id=call.span_id, is_last=recent.sampled)
        finally:
            await chunks.aclose()
        if not received.is_finished(num_choices):
            raise InferenceError("the model server's stream ended before the answer was whole", status=502)
        with ReadingAnswer():
            return received.answer()

    def _answered(self, sent: _Dispatched, answer: dict[str, Any]) -> Outcome:
        """Record and word the answer; what it took is counted once nothing can fail any more."""
        dialect, delivery = sent.asked.dialect, sent.asked.delivery
        span = answered_span(sent.call, answer, self._ended(sent))
        native = answer.pop(NATIVE, None)
        if not sent.request.stream:
            body = native if native is not None else dialect.answer(sent.request, answer)
        else:
            if delivery is not None:
                delivery.end(answer)
            body = dialect.events(sent.request).end(answer)  # for a repeat, after a lost answer
        if sent.memory is not None:
            marks = sent.memory.remember(sent.request, answer)
            if sent.passage is not None:
                sent.passage.marks |= marks
        span = self._admission.settled(sent.caller, sent.passage, span, answer)
        kind = EVENTS if sent.request.stream else JSON
        return Outcome(status=200, body=body, content_type=kind, span_id=span.span_id, unrecorded=span)

    def _refused_upstream(self, sent: _Dispatched, error: InferenceError) -> Outcome:
        """The upstream's own status and body, unchanged where it speaks the client's format."""
        status = error.status if 400 <= error.status <= 599 else 502
        outcome = self._failure(sent, str(status), str(error), status=status, body=error.body)
        text = error.body
        if isinstance(text, str | bytes) and sent.asked.dialect.name.startswith("openai."):
            outcome.body = text.encode() if isinstance(text, str) else text
            outcome.content_type = _TEXT
        return outcome

    def _failure(
        self, sent: _Dispatched, error_type: str, message: str, *, status: int, body: object = None
    ) -> Outcome:
        span = self._failed(sent, error_type, message)
        told = upstream_error(body)
        if sent.asked.delivery is not None:
            sent.asked.delivery.fail(message, status=status, code=error_type, body=told)
        worded = sent.asked.dialect.error_body(message, status=status, code=error_type, body=told)
        return Outcome(status=status, body=worded, content_type=JSON, span_id=span.span_id, unrecorded=span)

    def _failed(self, sent: _Dispatched, error_type: str, description: str) -> Span:
        """Record and count a failure with what came of the answer, as far as that can be read."""
        record = partial(
            failed_span, sent.call, self._ended(sent), error_type=error_type, description=description
        )
        if sent.received.begun:
            with suppress(InferenceError), ReadingAnswer():
                received = sent.received.answer()
                span = record(received=received)
                return self._admission.settled(sent.caller, sent.passage, span, received)
        return self._admission.settled(sent.caller, sent.passage, record(), None)

    def _new_span_id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def _ended(self, sent: _Dispatched) -> Ended:
        return Ended(
            ended_ns=self._now_ns(), first_chunk_ns=sent.first_chunk_ns, policy_version=self._policy_version()
        )

    def _policy_version(self) -> int | None:
        """The version that the upstream serves now, where it knows one."""
        version = getattr(self._upstream, "policy_version", None)
        return version if isinstance(version, int) else None
