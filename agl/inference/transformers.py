"""The small in-process engine: one transformers model, requests batched continuously, exact ids and logprobs.

The model lives in a thread of its own; the event loop only renders prompts and writes answers. One version of the
weights samples all of a call's answer. ``logprobs`` are log_softmax(logits / temperature) at the sampled ids, at
temperature 0 of the plain logits, before top_k and top_p cut the distribution (see sampling.py).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from agl.errors import ConfigError, InferenceError, require_extra
from agl.inference.answer import TokenTexts, chat_completion, stop_check
from agl.inference.chat import ChatRequest, answer_tokens, encode_prompt, parse_request, prompt_characters
from agl.inference.chunks import ChunkStream
from agl.inference.huggingface import (
    check_policy_folder,
    end_token_ids,
    load_model,
    load_tokenizer,
    max_length,
    resolve_device,
    resolve_dtype,
)
from agl.inference.rows import Call, Row
from agl.inference.text_stream import TokenJoints
from agl.inference.worker import BatchWorker
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights

if TYPE_CHECKING:
    from agl.inference.batch import DecodingBatch

_TINY_PARAMETERS = 20_000_000
"""Below this, a second torch thread costs more in waiting than it computes (measured on 0.5 M parameters)."""

_LONG_PROMPT_CHARACTERS = 10_000
"""From here on a prompt is encoded beside the event loop, which 0.4 microseconds a character would stop for 4 ms."""


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """What entering the engine makes."""

    worker: BatchWorker
    loop: asyncio.AbstractEventLoop
    futures: dict[Call, asyncio.Future[None]] = field(default_factory=dict[Call, "asyncio.Future[None]"])
    news: dict[Call, asyncio.Event] = field(default_factory=dict[Call, asyncio.Event])
    """Of the streamed calls: set whenever their rows went on."""
    tokenizer: Any = None
    texts: TokenTexts | None = None
    joints: TokenJoints | None = None
    max_length: int = 0
    model: Any = None


class TransformersEngine:
    """Serves a policy in this process, on CPU or one GPU.

    Args:
        policy: which model, and in which precision and on which device.
        max_batch_size: answers sampled at once; more wait their turn.
        prefix_cache_bytes: of what is kept of answered calls, so that prompts which begin alike (the next turn of a
            conversation, the rest of a group) are not computed again; 0 keeps nothing.
        num_threads: of torch; None is 1 on CPU for models under 20 million parameters, else torch's own default. It
            holds for the engine's thread and for every thread that uses torch for the first time afterwards.
            ``OMP_WAIT_POLICY=PASSIVE`` and ``GOMP_SPINCOUNT=0`` spare the CPU when several processes use torch; they
            must be in the environment before torch is first imported.
        seed: of the requests that bring no seed of their own.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_batch_size: int = 64,
        prefix_cache_bytes: int = 268_435_456,
        num_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        if max_batch_size < 1:
            raise ConfigError(f"inference.max_batch_size={max_batch_size} must be at least 1")
        if prefix_cache_bytes < 0:
            raise ConfigError(f"inference.prefix_cache_bytes={prefix_cache_bytes} must be at least 0")
        if num_threads is not None and num_threads < 1:
            raise ConfigError(f"inference.num_threads={num_threads} must be at least 1, or null")
        require_extra("the transformers engine", "torch", "torch", "transformers")
        check_policy_folder(policy)
        self._policy = policy
        self._max_batch_size = max_batch_size
        self._prefix_cache_bytes = prefix_cache_bytes
        self._num_threads = num_threads
        self._seeds = random.Random(seed)
        self._loaded: _Loaded | None = None

    @property
    def model(self) -> str:
        """The model name that requests use."""
        return self._policy.name

    @property
    def policy_version(self) -> int:
        """The version of the weights served now; 0 for those it started with."""
        return 0 if self._loaded is None else self._loaded.worker.policy_version

    @property
    def trainable(self) -> bool:
        """True: weights can be swapped and answers carry exact ids."""
        return True

    async def __aenter__(self) -> Self:
        """Load the model, in the engine's thread."""
        if self._loaded is not None:
            raise RuntimeError("the engine is entered already")
        loaded = _Loaded(
            worker=BatchWorker(lambda: self._load(loaded), lambda calls: _deliver(loaded, calls)),
            loop=asyncio.get_running_loop(),
        )
        loaded.worker.start()
        try:
            await asyncio.wrap_future(loaded.worker.ready)
        except BaseException:
            loaded.worker.stop()
            raise
        self._loaded = loaded
        return self

    async def __aexit__(self, *_: object) -> None:
        """Fail the calls in flight with 503 and free the model."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.worker.stop()
            await asyncio.shield(asyncio.to_thread(loaded.worker.join))
            loaded.model = loaded.tokenizer = loaded.texts = loaded.joints = None

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request; see ``Engine.complete_chat``.

        ``logprobs.content`` is there when the request asks for it with ``logprobs: true``; the ids always are.
        Cancelling the caller drops its rows from the batch.

        Raises:
            InferenceError: 400 the request is wrong or not supported, 404 another model, 500 sampling failed, 503
            closed.
        """
        loaded = self._running()
        chat = parse_request(request, model=self.model)
        call = await self._call(chat, loaded)
        await _ended(loaded, call)
        assert loaded.texts is not None
        assert call.policy_version is not None
        return chat_completion(
            chat,
            call.rows[0].prompt_ids,
            call.rows,
            model=self.model,
            policy_version=call.policy_version,
            texts=loaded.texts,
            created=int(time.time()),
            new_id=_new_id,
        )

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer a chat completion request in chunks; see ``Engine.stream_chat``.

        One chunk a choice for each step of the batch, or for several when the caller is slower. Closing the generator
        drops its rows from the batch.

        Raises:
            InferenceError: as ``complete_chat`` does.
        """
        loaded = self._running()
        chat = parse_request({**request, "stream": None}, model=self.model)
        call = await self._call(chat, loaded)
        call.streamed = True
        assert loaded.texts is not None
        assert loaded.joints is not None
        stream = ChunkStream(
            chat,
            call.rows,
            model=self.model,
            texts=loaded.texts,
            joints=loaded.joints,
            created=int(time.time()),
            new_id=_new_id,
        )
        news = loaded.news[call] = asyncio.Event()
        loaded.worker.submit(call)
        try:
            while not stream.finished:
                await news.wait()
                news.clear()
                if call.error is not None:
                    raise call.error
                for chunk in stream.new_chunks(call.policy_version):
                    yield chunk
            yield stream.usage_chunk(call.policy_version)
        finally:
            del loaded.news[call]
            if not stream.finished and call.error is None:
                loaded.worker.cancel(call)

    async def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Return how many tokens the prompt of a chat completion request has, without sampling.

        Raises:
            InferenceError: 400 the request is wrong, 404 another model, 503 closed.
        """
        loaded = self._running()
        chat = parse_request(request, model=self.model)
        return len(await asyncio.to_thread(encode_prompt, chat, loaded.tokenizer))

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Serve these weights to every call that has not begun; returns when they are served.

        Raises:
            InferenceError: 400 they do not fit the model (the old ones are served on), 503 closed.
            ConfigError: their folder cannot be loaded.
        """
        from agl.inference.weights import put_weights

        loaded = self._running()
        apply = partial(put_weights, loaded.model, weights, self._policy)
        await asyncio.wrap_future(loaded.worker.swap(apply, weights.policy_version))

    def _running(self) -> _Loaded:
        if self._loaded is None:
            raise InferenceError("the engine is closed", status=503)
        return self._loaded

    async def _call(self, chat: ChatRequest, loaded: _Loaded) -> Call:
        tokenizer = loaded.tokenizer
        if prompt_characters(chat) > _LONG_PROMPT_CHARACTERS:
            prompt_ids = await asyncio.to_thread(encode_prompt, chat, tokenizer)
        else:
            prompt_ids = encode_prompt(chat, tokenizer)
        max_tokens = answer_tokens(chat, len(prompt_ids), loaded.max_length)
        seed = self._seeds.getrandbits(64) if chat.seed is None else chat.seed
        rows = [
            Row(
                prompt_ids=prompt_ids,
                max_tokens=max_tokens,
                temperature=chat.temperature,
                top_p=chat.top_p,
                top_k=chat.top_k,
                # Choice 0 does not depend on n.
                draw=random.Random(f"{seed}/{choice}").random,
                stopped=stop_check(chat.stop, tokenizer),
            )
            for choice in range(chat.num_choices)
        ]
        return Call(rows=rows, num_unfinished=len(rows))

    def _load(self, loaded: _Loaded) -> DecodingBatch:
        """Load tokenizer and model into ``loaded`` and return the batch; runs in the worker's thread."""
        import torch

        from agl.inference.batch import DecodingBatch

        policy = self._policy
        device = resolve_device(policy)
        loaded.tokenizer = load_tokenizer(policy)
        loaded.texts = TokenTexts(loaded.tokenizer)
        loaded.joints = TokenJoints(loaded.tokenizer)
        model = loaded.model = load_model(policy, dtype=resolve_dtype(policy, device), device=device)
        loaded.max_length = max_length(policy, model.config)
        if self._num_threads is not None:
            torch.set_num_threads(self._num_threads)
        elif device.type == "cpu" and model.num_parameters() < _TINY_PARAMETERS:
            torch.set_num_threads(1)
        end_ids = end_token_ids(loaded.tokenizer, model.generation_config)
        return DecodingBatch(
            model, end_ids=end_ids, max_rows=self._max_batch_size, max_prefix_bytes=self._prefix_cache_bytes
        )


def _deliver(loaded: _Loaded, calls: Sequence[Call]) -> None:
    """Wake up those who wait for the calls; runs in the worker's thread, once a step."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loaded.loop.call_soon_threadsafe(_resolve, loaded, calls)


def _resolve(loaded: _Loaded, calls: Sequence[Call]) -> None:
    for call in calls:
        if call.streamed:
            news = loaded.news.get(call)
            if news is not None:
                news.set()
            continue
        future = loaded.futures.get(call)
        if future is None or future.done():
            continue
        if call.error is None:
            future.set_result(None)
        else:
            future.set_exception(call.error)


async def _ended(loaded: _Loaded, call: Call) -> None:
    """Hand a call to the worker and wait for its end.

    Raises:
        InferenceError: it failed.
    """
    future = loaded.futures[call] = loaded.loop.create_future()
    loaded.worker.submit(call)
    try:
        await future
    except asyncio.CancelledError:
        loaded.worker.cancel(call)
        raise
    finally:
        del loaded.futures[call]


def _new_id() -> str:
    return uuid4().hex
