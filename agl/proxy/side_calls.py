"""What clients ask for beside calls of the model: which models there are, embeddings, and counts of tokens.

None of these is sampled, so none is trained on; embeddings are recorded as spans of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from agl.errors import InferenceError
from agl.proxy.canonical import token_count
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import CallContext, RoutedUpstream, TokenCounter, Upstream
from agl.types import NamedResources, ProxyLLM

_ONE_TOKEN = {"max_tokens": 1, "n": 1}
_UNKNOWN = "1970-01-01T00:00:00Z"  # Anthropic's word for a release date that is not known


def model_names(upstream: Upstream | RoutedUpstream, resources: NamedResources | None) -> list[str]:
    """Return the models that an attempt can name, the default first."""
    names = dict.fromkeys(upstream.models if isinstance(upstream, RoutedUpstream) else [upstream.model])
    if resources is not None:
        names.update((llm.model, None) for llm in resources.resources.values() if isinstance(llm, ProxyLLM))
    return list(names)


def openai_models(names: Iterable[str]) -> bytes:
    """Return OpenAI's list of models."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "agl"} for name in names]
    return orjson.dumps({"object": "list", "data": models})


def anthropic_models(names: Iterable[str]) -> bytes:
    """Return Anthropic's list of models."""
    models = [
        {"type": "model", "id": name, "display_name": name, "created_at": _UNKNOWN, "lifecycle": "active"}
        for name in names
    ]
    ids = [model["id"] for model in models]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return orjson.dumps({"data": models, "has_more": False, **ends})


async def embedded(
    upstream: Upstream | RoutedUpstream, body: Mapping[str, Any], context: CallContext
) -> dict[str, Any]:
    """Return the upstream's answer to a request for embeddings.

    Raises:
        InferenceError: the upstream's refusal.
        CallRefusedError: 404, it has no embeddings.
    """
    if isinstance(upstream, RoutedUpstream):
        return await upstream.embed(body, context=context)
    message = f"the model server of {upstream.model} has no embeddings; give the proxy an upstream that has"
    raise CallRefusedError(message, status=404, code="no_embeddings", retry=False)


async def num_prompt_tokens(
    upstream: Upstream | RoutedUpstream, request: Mapping[str, Any], context: CallContext
) -> int:
    """Return how many tokens the upstream counts in a prompt; one that cannot count is asked for a single token.

    Raises:
        InferenceError: the upstream's refusal, or 502 when it does not say how many.
        CallRefusedError: no upstream can take the request.
    """
    count: int | None = None
    if isinstance(upstream, RoutedUpstream):
        count = await upstream.count_tokens(request, context=context)
    elif isinstance(upstream, TokenCounter):
        count = await upstream.count_tokens(request)
    return await _sampled_count(upstream, request, context) if count is None else count


async def _sampled_count(
    upstream: Upstream | RoutedUpstream, request: Mapping[str, Any], context: CallContext
) -> int:
    others = {name: value for name, value in request.items() if name != "max_completion_tokens"}
    probe = others | _ONE_TOKEN
    if isinstance(upstream, RoutedUpstream):
        native = replace(context, native={**context.native, "max_tokens": 1})
        answer = await upstream.complete_chat(probe, context=native)
    else:
        answer = await upstream.complete_chat(probe)
    count = token_count(answer.get("usage"), "prompt_tokens")
    if count is None:
        raise InferenceError("the model server does not say how many tokens a prompt has", status=502)
    return count
