"""LitellmServer: any provider that litellm knows. The library is imported with the first call, in a thread.

What the proxy adds to a call of its own (ids, logprobs, seeds, a temperature) is left out where litellm says that the
provider does not take it; what the client or the resources ask for is never left out: litellm then refuses the call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from importlib import import_module
from typing import Any, cast

from agl.errors import InferenceError, require_extra
from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import UpstreamError, is_retried, is_sick, masked, shown
from agl.proxy.upstreams.completions import chat_from_completion, chunk_from_completion
from agl.proxy.upstreams.waits import retry_after_seconds
from agl.types import ModelEndpoint

Json = dict[str, Any]

_ADDED = ("temperature", "logprobs", "top_logprobs", "seed")
"""What the proxy may have added to a request."""
_WITH_IDS = ("hosted_vllm", "vllm")
"""Providers that are asked for token ids where the endpoint does not say."""


class LitellmServer:
    """Calls of one endpoint, through litellm.

    Args:
        endpoint: its settings; ``upstream_model`` is litellm's ``provider/model``.
        url: the provider's base URL; None leaves it to litellm.
        key: the provider's API key; None leaves it to litellm, which has environment variables of its own.
        library: litellm, or what stands in for it; None imports it with the first call.

    Raises:
        MissingExtraError: litellm is not installed.
    """

    def __init__(
        self, endpoint: ModelEndpoint, *, url: str | None, key: str | None, library: Any = None
    ) -> None:
        if library is None:
            require_extra("upstream=litellm", "litellm", "litellm")
        self._endpoint = endpoint
        self._url = url
        self._key = key
        self._litellm = library

    def takes(self, context: CallContext) -> bool:
        """All that can be said canonically."""
        return context.native_only is None

    async def complete(self, request: Mapping[str, Any], context: CallContext) -> Json:
        """Answer a canonical request.

        Raises:
            UpstreamError: the provider's status and body.
        """
        litellm = await self._loaded()
        is_text = "prompt" in request
        ask = litellm.atext_completion if is_text else litellm.acompletion
        try:
            answered = await ask(**self._asked(litellm, request, context, stream=False))
        except Exception as error:  # whatever litellm and the provider's own library raise
            raise self._failed(error) from error
        answer = _plain(answered)
        if is_text:
            return chat_from_completion(answer)
        for choice in cast("list[Json]", answer.get("choices") or []):
            choice.setdefault("message", {}).setdefault("content", None)
        return answer

    async def stream(self, request: Mapping[str, Any], context: CallContext) -> AsyncGenerator[Json]:
        """Answer a canonical request in chunks; the usage comes last.

        Raises:
            UpstreamError: the provider's status and body.
        """
        litellm = await self._loaded()
        is_text = "prompt" in request
        ask = litellm.atext_completion if is_text else litellm.acompletion
        usage: object = None
        frame: Json = {}
        chunks: Any = None
        try:
            chunks = await ask(**self._asked(litellm, request, context, stream=True))
            async for told in chunks:
                chunk = _plain(told)
                usage = chunk.pop("usage", None) or usage
                frame = {name: chunk[name] for name in ("id", "created", "model") if name in chunk}
                if chunk.get("choices"):
                    yield chunk_from_completion(chunk) if is_text else chunk
        except Exception as error:  # whatever litellm and the provider's own library raise
            raise self._failed(error) from error
        finally:
            if hasattr(chunks, "aclose"):
                await chunks.aclose()
        yield {**frame, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    async def embed(self, body: Mapping[str, Any]) -> Json:
        """Answer an embeddings request.

        Raises:
            UpstreamError: the provider's status and body.
        """
        litellm = await self._loaded()
        try:
            return _plain(await litellm.aembedding(**{**body, **self._fixed(str(body.get("model")))}))
        except Exception as error:  # whatever litellm and the provider's own library raise
            raise self._failed(error) from error

    async def probe(self) -> bool | None:
        """None: litellm reaches providers by calls alone."""
        return None

    async def aclose(self) -> None:
        """Nothing is open: litellm keeps its connections for the process."""

    async def _loaded(self) -> Any:
        """The library, without its request for a price map, its advertising and its log of requests."""
        if self._litellm is None:
            os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            os.environ.setdefault("LITELLM_LOG", "ERROR")
            litellm: Any = await asyncio.to_thread(import_module, "litellm")
            litellm.suppress_debug_info = True
            self._litellm = litellm
        return self._litellm

    def _fixed(self, model: str) -> Json:
        """What stands in every call: whom to ask with which key, once and without litellm's own bookkeeping."""
        fixed: Json = {
            "model": self._endpoint.upstream_model or model,
            "timeout": self._endpoint.timeout_seconds,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": False,
            "no-log": True,
            "caching": False,
        }
        if self._url is not None:
            fixed["api_base"] = self._url
        if self._key is not None:
            fixed["api_key"] = self._key
        return fixed

    def _asked(self, litellm: Any, request: Mapping[str, Any], context: CallContext, *, stream: bool) -> Json:
        fixed = self._fixed(request["model"])
        asked = {name: value for name, value in request.items() if name not in fixed}
        if stream:
            asked["stream_options"] = {"include_usage": True}
        model, provider = _model_and_provider(litellm, fixed)
        supported = litellm.get_supported_openai_params(model=model, custom_llm_provider=provider) or ()
        for name in _ADDED:
            wanted = name in context.forced or context.native.get(name) not in (None, False)
            if name in asked and name not in supported and not wanted:
                del asked[name]
        if self._endpoint.logprobs is False and not context.native.get("logprobs"):
            asked.pop("logprobs", None)
            asked.pop("top_logprobs", None)
        wants_ids = self._endpoint.token_ids
        if asked.pop("return_token_ids", None) and (
            provider in _WITH_IDS if wants_ids is None else wants_ids
        ):
            asked["extra_body"] = {"return_token_ids": True}
        return {**asked, **fixed, "stream": stream}

    def _failed(self, error: Exception) -> InferenceError:
        """The provider's failure; what litellm itself refuses is the client's to mend."""
        if isinstance(error, InferenceError):
            return error
        given: object = getattr(error, "provider_status_code", None) or getattr(error, "status_code", None)
        status = given if isinstance(given, int) and 400 <= given <= 599 else 502
        headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
        text = masked(str(error), self._key)
        return UpstreamError(
            f"{self._endpoint.upstream_model or self._endpoint.model} by litellm: {shown(text)}",
            status=status,
            body=_masked_body(getattr(error, "body", None), self._key),
            retry=is_retried(status),
            sick=is_sick(status),
            retry_after=retry_after_seconds({name.lower(): headers[name] for name in headers}, now=0.0),
        )


def _model_and_provider(litellm: Any, fixed: Mapping[str, Any]) -> tuple[str, str]:
    try:
        model, provider, _, _ = litellm.get_llm_provider(fixed["model"], api_base=fixed.get("api_base"))
    except Exception as error:  # litellm's own, for a name without a provider
        message = (
            f"litellm knows no provider of {fixed['model']!r}: upstream_model is written provider/model, "
            "e.g. openai/gpt-5"
        )
        raise UpstreamError(message, status=400) from error
    return str(model), str(provider)


def _plain(answered: Any) -> Json:
    return cast("Json", answered.model_dump(exclude_none=True))


def _masked_body(body: object, key: str | None) -> object:
    """The error body without the key, in whichever text of it the provider repeats it."""
    if isinstance(body, str):
        return masked(body, key)
    if isinstance(body, dict):
        return {name: _masked_body(value, key) for name, value in cast("Json", body).items()}
    if isinstance(body, list):
        return [_masked_body(value, key) for value in cast("list[object]", body)]
    return body
