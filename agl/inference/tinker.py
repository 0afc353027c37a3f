"""The engine of a policy that the Tinker service trains and serves: exact ids and logprobs, nothing computed here.

Prompts are rendered and encoded here, by the policy's own tokenizer. The service does not stream: a streamed answer
comes whole. Whether its logprobs are those before or after temperature, top_p and top_k has changed over time (and
nothing documents it), so answers have them only where the two are the same: at temperature 1 with the whole
distribution.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from agl.errors import ConfigError, InferenceError, require_extra
from agl.inference.answer import TokenTexts, chat_completion, stop_check
from agl.inference.chat import ChatRequest, answer_tokens, encode_prompt, parse_request
from agl.inference.chunks import ChunkStream
from agl.inference.huggingface import (
    check_tokenizer_folder,
    end_token_ids,
    load_generation_config,
    load_tokenizer,
)
from agl.inference.text_stream import TokenJoints
from agl.inference.tinker_service import TinkerService, TinkerServiceError
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights

if TYPE_CHECKING:
    import tinker

log = logging.getLogger(__name__)
_BUSY = (408, 429, 503)
"""Statuses that say the service cannot answer now; an agent's client may ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAnswer:
    """One choice as the service sampled it, up to where it ends for us."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """The weights that answer calls now."""

    sampler: tinker.SamplingClient
    policy_version: int


@dataclass(slots=True, kw_only=True)
class _Opened:
    """What entering the engine makes."""

    stack: AsyncExitStack
    service: TinkerService
    tokenizer: Any
    texts: TokenTexts
    joints: TokenJoints
    end_ids: frozenset[int]
    max_length: int
    served: _Served
    warned: bool = False


class TinkerEngine:
    """Serves a policy by the Tinker service's sampling.

    Args:
        policy: ``path`` is the tokenizer's folder or name; device, dtype and weights are the service's.
        base_model: what the service calls the model; None is ``policy.path``.
        weights: a ``tinker://`` path of sampler weights to begin with; None is the base model.
        timeout_seconds: the longest wait for an answer.
        connect_seconds: the longest wait for a session with the service.
        seed: of the requests that bring no seed of their own.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        base_model: str | None = None,
        weights: str | None = None,
        timeout_seconds: float = 600.0,
        connect_seconds: float = 60.0,
        seed: int = 0,
    ) -> None:
        for name, value in (("timeout_seconds", timeout_seconds), ("connect_seconds", connect_seconds)):
            if not value > 0:
                raise ConfigError(f"inference.{name}={value}: more than 0")
        if weights is not None and not weights.startswith("tinker://"):
            raise ConfigError(f"inference.weights={weights} must begin with tinker://")
        require_extra("the tinker engine", "tinker", "tinker", "transformers")
        check_tokenizer_folder(policy)
        self._policy = policy
        self._base_model = base_model or policy.path
        self._first_weights = weights
        self._timeout_seconds = timeout_seconds
        self._connect_seconds = connect_seconds
        self._seeds = random.Random(seed)
        self._opened: _Opened | None = None

    @property
    def model(self) -> str:
        """The model name that requests use."""
        return self._policy.name

    @property
    def policy_version(self) -> int:
        """The version of the weights served now; 0 for those it started with."""
        return 0 if self._opened is None else self._opened.served.policy_version

    @property
    def trainable(self) -> bool:
        """True: weights can be swapped and answers carry exact ids."""
        return True

    @property
    def kept_as(self) -> str:
        """What the service calls the weights to begin with."""
        return f"Tinker's {self._first_weights or self._base_model}"

    async def __aenter__(self) -> Self:
        """Open a session with the service.

        Raises:
            ConfigError: the key, the model or the tokenizer is at fault.
            TinkerServiceError: the service cannot be reached, or refuses.
        """
        async with AsyncExitStack() as stack:
            tokenizer = await asyncio.to_thread(load_tokenizer, self._policy)
            generation = await asyncio.to_thread(load_generation_config, self._policy)
            service = await stack.enter_async_context(
                TinkerService(connect_seconds=self._connect_seconds, timeout_seconds=self._timeout_seconds)
            )
            longest = await service.model_length(self._base_model, setting="inference.base_model")
            sampler = await self._sampler(service, self._first_weights)
            self._opened = _Opened(
                service=service,
                tokenizer=tokenizer,
                texts=TokenTexts(tokenizer),
                joints=TokenJoints(tokenizer),
                end_ids=end_token_ids(tokenizer, generation),
                max_length=_max_length(self._policy, longest),
                served=_Served(sampler=sampler, policy_version=0),
                stack=stack.pop_all(),
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session; calls in flight fail."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.stack.aclose()

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request; see ``Engine.complete_chat``.

        Raises:
            InferenceError: 400 the request is wrong or not supported, 404 another model, 429, 503 or 504 the service is
            busy or too slow, 502 it failed, 503 closed.
        """
        opened = self._running()
        served = opened.served
        chat = self._readable(opened, parse_request(request, model=self.model))
        answers = await self._answers(opened, served, chat)
        return chat_completion(
            chat,
            answers[0].prompt_ids,
            answers,
            model=self.model,
            policy_version=served.policy_version,
            texts=opened.texts,
            created=int(time.time()),
            new_id=_new_id,
        )

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer a chat completion request in chunks: one a choice, once the service has sampled all of them.

        Raises:
            InferenceError: as ``complete_chat`` does, before the first chunk.
        """
        opened = self._running()
        served = opened.served
        chat = self._readable(opened, parse_request({**request, "stream": None}, model=self.model))
        stream = ChunkStream(
            chat,
            await self._answers(opened, served, chat),
            model=self.model,
            texts=opened.texts,
            joints=opened.joints,
            created=int(time.time()),
            new_id=_new_id,
        )
        for chunk in stream.new_chunks(served.policy_version):
            yield chunk
        yield stream.usage_chunk(served.policy_version)

    async def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Return how many tokens the prompt of a chat completion request has, without sampling.

        Raises:
            InferenceError: 400 the request is wrong, 404 another model, 503 closed.
        """
        opened = self._running()
        chat = parse_request(request, model=self.model)
        return len(await asyncio.to_thread(encode_prompt, chat, opened.tokenizer))

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Serve weights that the service keeps to every call that has not begun.

        Raises:
            ConfigError: they are not the service's.
            InferenceError: the service does not give them; the old ones are served on.
        """
        opened = self._running()
        if weights.remote is None:
            raise ConfigError(
                "inference=tinker serves weights that the Tinker service keeps: learner=tinker goes with it; "
                "for learner=torch use inference=transformers"
            )
        try:
            sampler = await self._sampler(opened.service, weights.remote)
        except TinkerServiceError as error:
            raise InferenceError(str(error), status=error.status) from error
        opened.served = _Served(sampler=sampler, policy_version=weights.policy_version)

    async def _sampler(self, service: TinkerService, path: str | None) -> tinker.SamplingClient:
        client = service.client
        if path is None:
            name = self._base_model
            return await service.answer(
                f"the Tinker service does not serve {name}",
                lambda: client.create_sampling_client(base_model=name),
            )
        return await service.answer(
            f"the Tinker service does not serve the weights {path}",
            lambda: client.create_sampling_client(model_path=path),
        )

    def _running(self) -> _Opened:
        if self._opened is None:
            raise InferenceError("the engine is closed", status=503)
        return self._opened

    def _readable(self, opened: _Opened, chat: ChatRequest) -> ChatRequest:
        """The request without logprobs, where it is not known what the service's mean."""
        if chat.temperature == 1 and chat.top_p == 1 and chat.top_k == 0:
            return chat
        if chat.logprobs and chat.temperature > 0 and not opened.warned:
            opened.warned = True
            log.warning(
                "calls at temperature %g, top_p %g, top_k %d come without logprobs, so nothing is learned from them: "
                "train with algorithm.temperature=1 and the whole distribution",
                chat.temperature,
                chat.top_p,
                chat.top_k,
            )
        return replace(chat, logprobs=False)

    async def _answers(self, opened: _Opened, served: _Served, chat: ChatRequest) -> list[RemoteAnswer]:
        from tinker import ModelInput, SamplingParams

        prompt_ids = await asyncio.to_thread(encode_prompt, chat, opened.tokenizer)
        seed = self._seeds.getrandbits(31) if chat.seed is None else chat.seed % 2**31
        params = SamplingParams(
            max_tokens=answer_tokens(chat, len(prompt_ids), opened.max_length),
            seed=seed,
            # With stop strings it is not known whether the service still stops at end tokens: those are cut here.
            stop=list(chat.stop) if chat.stop else sorted(opened.end_ids),
            temperature=chat.temperature,
            top_p=chat.top_p,
            top_k=chat.top_k or -1,
        )
        try:
            sampled = await opened.service.answer(
                "the Tinker service did not answer the call",
                lambda: served.sampler.sample(ModelInput.from_ints(prompt_ids), chat.num_choices, params),
            )
        except TinkerServiceError as error:
            status = error.status if error.status in (*_BUSY, 504) else 502
            raise InferenceError(str(error), status=status) from error
        stopped = stop_check(chat.stop, opened.tokenizer)
        return [answer_of(prompt_ids, sequence, opened.end_ids, stopped) for sequence in sampled.sequences]


def answer_of(
    prompt_ids: Sequence[int],
    sequence: tinker.SampledSequence,
    end_ids: frozenset[int],
    stopped: Callable[[Sequence[int]], bool] | None,
) -> RemoteAnswer:
    """Return what was sampled up to the first end token or the token that completes a stop string, included."""
    token_ids, logprobs = list(sequence.tokens), list(sequence.logprobs or ())
    if len(logprobs) != len(token_ids):
        raise InferenceError(
            f"the Tinker service sent {len(logprobs)} logprobs for {len(token_ids)} tokens", status=502
        )
    for size, token_id in enumerate(token_ids, 1):
        if token_id in end_ids or (stopped is not None and stopped(token_ids[:size])):
            return RemoteAnswer(
                prompt_ids=prompt_ids,
                token_ids=token_ids[:size],
                logprobs=logprobs[:size],
                finish_reason="stop",
            )
    return RemoteAnswer(
        prompt_ids=prompt_ids, token_ids=token_ids, logprobs=logprobs, finish_reason=sequence.stop_reason
    )


def _max_length(policy: Policy, longest: int | None) -> int:
    if policy.max_length is None:
        if longest is None:
            raise ConfigError("the Tinker service names no longest sequence; set policy.max_length")
        return longest
    if policy.max_length < 2:
        raise ConfigError(f"policy.max_length={policy.max_length} must be at least 2")
    if longest is not None and policy.max_length > longest:
        raise ConfigError(f"policy.max_length={policy.max_length} is more than the service's {longest}")
    return policy.max_length


def _new_id() -> str:
    return uuid4().hex
