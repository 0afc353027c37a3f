"""OpenAIServer: any server that speaks OpenAI's chat completions - vLLM, SGLang, llama.cpp, an engine of agl.

Asks for the exact ids and logprobs. A server that refuses one of these fields, and says so, is asked again without it
and never again with it; the record of such a call says what is missing. A server that wants the limit of tokens under
its newer name, as OpenAI's reasoning models do, gets it so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

import orjson

from agl.errors import InferenceError
from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.completions import chat_from_completion, chunk_from_completion, completions_request
from agl.proxy.upstreams.http import HttpServer
from agl.types.sse import DONE

Json = dict[str, Any]

_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "return_token_ids": ("return_token_ids",),
    "logprobs": ("logprobs", "top_logprobs"),
    "stream_options": ("stream_options",),
}
"""What the proxy asks for of its own, by the name that a refusal says, and the fields that go with it."""
_NEWER_LIMIT = "max_completion_tokens"
_REFUSING = (400, 403, 422)  # what servers answer to a field that they do not know or allow


class OpenAIServer:
    """Forwards canonical calls to one base URL.

    Args:
        http: the server.
        model: what it calls the model; None: as the call does.
        token_ids: whether to ask for ``return_token_ids``; None: until it is refused.
        logprobs: whether to ask for logprobs that the client did not ask for; None: until they are refused.
    """

    def __init__(
        self, http: HttpServer, *, model: str | None, token_ids: bool | None, logprobs: bool | None
    ) -> None:
        self._http = http
        self._model = model
        self._never_without = {
            name for name, wish in (("return_token_ids", token_ids), ("logprobs", logprobs)) if wish
        }
        self._without = {
            name for name, wish in (("return_token_ids", token_ids), ("logprobs", logprobs)) if wish is False
        }
        self._limit = "max_tokens"

    def takes(self, context: CallContext) -> bool:
        """All that can be said canonically."""
        return context.native_only is None

    async def complete(self, request: Mapping[str, Any], context: CallContext) -> Json:
        """Answer a canonical request.

        Raises:
            UpstreamError: the server's status and body, or why there is none.
        """
        is_text = "prompt" in request
        path = "/completions" if is_text else "/chat/completions"
        while True:
            asked = self._asked(request, context, stream=False)
            try:
                answer = self._http.parsed(await self._http.post(path, asked))
            except UpstreamError as error:
                self._learn(error, asked, context)
                continue
            answer = chat_from_completion(answer) if is_text else answer
            if not answer.get("choices") or not _has_choices(answer, "message"):
                raise self._http.broken("answered with what is no completion")
            return answer

    async def stream(self, request: Mapping[str, Any], context: CallContext) -> AsyncGenerator[Json]:
        """Answer a canonical request in chunks.

        Raises:
            UpstreamError: the same; also when the stream ends before its end.
        """
        is_text = "prompt" in request
        path = "/completions" if is_text else "/chat/completions"
        while True:
            asked = self._asked(request, context, stream=True)
            begun = False
            try:
                async with aclosing(self._chunks(path, asked)) as chunks:
                    async for chunk in chunks:
                        begun = True
                        yield chunk_from_completion(chunk) if is_text else chunk
            except UpstreamError as error:
                if begun:
                    raise
                self._learn(error, asked, context)
                continue
            return

    async def embed(self, body: Mapping[str, Any]) -> Json:
        """Answer an embeddings request.

        Raises:
            UpstreamError: the server's status and body, or why there is none.
        """
        asked = dict(body) if self._model is None else {**body, "model": self._model}
        return self._http.parsed(await self._http.post("/embeddings", asked))

    async def probe(self) -> bool:
        """Whether the server lists its models."""
        return await self._http.probe()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _chunks(self, path: str, asked: Json) -> AsyncGenerator[Json]:
        end = _StreamEnd()
        async with self._http.posted_events(path, asked) as events, aclosing(events):
            async for event in events:
                if event.data == DONE and end.has_begun:
                    return
                if event.data == DONE:
                    raise self._http.broken("streamed no answer")
                chunk = self._chunk(event.data)
                end.note(chunk)
                yield chunk
        if not end.has_come:  # some servers say no [DONE]
            raise self._http.broken("ended its stream before the end")

    def _chunk(self, data: bytes) -> Json:
        try:
            chunk: object = orjson.loads(data)
        except orjson.JSONDecodeError:
            chunk = None
        if not isinstance(chunk, dict):
            raise self._http.broken("streamed something else than JSON objects")
        found = cast("Json", chunk)
        if found.get("error") and not found.get("choices"):
            raise _streamed_error(self._http.url, self._http.parsed(self._http.masked(data)))
        if not _has_choices(found, "delta"):
            raise self._http.broken("streamed what is no chunk of a completion")
        return found

    def _asked(self, request: Mapping[str, Any], context: CallContext, *, stream: bool) -> Json:
        """The body for this server: its model's name, streaming or not, and the extras that it takes."""
        asked = {**request, "stream": stream}
        if self._model is not None:
            asked["model"] = self._model
        if stream:
            asked["stream_options"] = {"include_usage": True}
        else:
            asked.pop("stream_options", None)
        for name in self._without:
            if not _is_wanted(name, context):
                for field in _EXTRAS[name]:
                    asked.pop(field, None)
        if self._limit != "max_tokens" and "max_tokens" in asked and "prompt" not in asked:
            asked.setdefault(self._limit, asked.pop("max_tokens"))
        return completions_request(asked) if "prompt" in asked else asked

    def _learn(self, error: UpstreamError, asked: Mapping[str, Any], context: CallContext) -> None:
        """Remember what the server refuses. Raises the error when it is about something else."""
        if error.status not in _REFUSING:
            raise error
        told = f"{error} {error.body}"
        if "max_tokens" in asked and _NEWER_LIMIT in told and "nsupported" in told and "prompt" not in asked:
            self._limit = _NEWER_LIMIT
            return
        for name in _EXTRAS:
            is_optional = name in asked and name not in self._never_without
            if is_optional and name in told and not _is_wanted(name, context):
                self._without.add(name)
                return
        raise error


class _StreamEnd:
    """Whether every choice that has begun has said why it ended."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._ended: set[int] = set()

    def note(self, chunk: Mapping[str, Any]) -> None:
        """Take a chunk into account."""
        for choice in cast("list[Json]", chunk.get("choices") or []):
            index = choice.get("index") or 0
            self._open.add(index)
            if choice.get("finish_reason"):
                self._ended.add(index)

    @property
    def has_begun(self) -> bool:
        """Whether any choice has."""
        return bool(self._open)

    @property
    def has_come(self) -> bool:
        """Whether nothing is missing."""
        return bool(self._open) and self._open == self._ended


def _has_choices(told: Mapping[str, Any], field: str) -> bool:
    """Whether the choices are objects, each with an object in ``field``, or nothing there."""
    choices: object = told.get("choices") or []
    return isinstance(choices, list) and all(
        isinstance(choice, dict) and _is_choice(cast("Json", choice), field)
        for choice in cast("list[object]", choices)
    )


def _is_choice(choice: Json, field: str) -> bool:
    return isinstance(choice.get("index") or 0, int) and isinstance(choice.get(field) or {}, dict)


def _is_wanted(name: str, context: CallContext) -> bool:
    """Whether the client itself asked for an extra, so that it is not left out behind its back."""
    return name != "stream_options" and context.native.get(name) not in (None, False)


def _streamed_error(url: str, told: Mapping[str, Any]) -> InferenceError:
    """A failure that a server tells of in a stream, as vLLM does."""
    error: object = told["error"]
    fields = cast("Mapping[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    code = fields.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 502
    message = f"{url} failed in its stream: {fields.get('message')}"
    return UpstreamError(
        message, status=status, body=dict(told), retry=status >= 500 or status == 429, sick=status >= 500
    )
