"""NativeServer: Anthropic's Messages and OpenAI's Responses, passed through to a server of the client's own format.

The client's body goes on as it came, apart from the model's name and what resources force; the answer comes back as it
came. Beside it stands its canonical form, for the record.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from agl.errors import InferenceError
from agl.proxy.dialects.base import NativeDialect, NativeReader
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import NATIVE, CallContext, NativeEvent
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.http import HttpServer
from agl.types.sse import Event, encode

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFormat:
    """What the proxy must know of a provider's wire format to pass it through."""

    dialect: str
    path: str
    kind: tuple[str, str]
    """A field of every answer, and what it says."""
    limit: str
    """The field that limits the answer's tokens."""
    stop: str | None
    """The field of stop texts."""
    known: frozenset[str]
    """Forced parameters that have the same name here."""
    last_events: frozenset[str]
    headers: Mapping[str, str]
    """Sent where the client sends none of that name."""

    def key_headers(self, key: str | None) -> dict[str, str]:
        """Return the headers that carry the API key."""
        if key is None:
            return {}
        return (
            {"x-api-key": key} if self.dialect == "anthropic.messages" else {"authorization": f"Bearer {key}"}
        )


ANTHROPIC = NativeFormat(
    dialect="anthropic.messages",
    path="/messages",
    kind=("type", "message"),
    limit="max_tokens",
    stop="stop_sequences",
    known=frozenset({"temperature", "top_p", "top_k"}),
    last_events=frozenset({"message_stop"}),
    headers={"anthropic-version": "2023-06-01"},
)
RESPONSES = NativeFormat(
    dialect="openai.responses",
    path="/responses",
    kind=("object", "response"),
    limit="max_output_tokens",
    stop=None,
    known=frozenset({"temperature", "top_p", "top_logprobs"}),
    last_events=frozenset({"response.completed", "response.incomplete", "response.failed"}),
    headers={},
)
_NOT_SAID = frozenset({"model", "seed", "logprobs", "return_token_ids", "n"})
"""Forced parameters that these providers do not have and whose absence the record shows: the model's name stands by
itself, seeds, ids and logprobs are missing there, one answer is the only number."""
_ONE_UNASKED = ("temperature", "top_p")
"""Are 1 where nothing is said. Newer models refuse to be told, or to be told both."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_PASSED_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")


class NativeServer:
    """Forwards calls of one wire format to one base URL.

    Args:
        http: the server.
        wire_format: what it speaks.
        model: what it calls the model; None: as the call does.
    """

    def __init__(self, http: HttpServer, wire_format: NativeFormat, *, model: str | None) -> None:
        self._http = http
        self._format = wire_format
        self._model = model

    def takes(self, context: CallContext) -> bool:
        """Calls of the server's own format only."""
        return context.dialect is not None and context.dialect.name == self._format.dialect

    async def complete(self, request: Mapping[str, Any], context: CallContext) -> Json:
        """Pass a call through; the canonical answer holds the native body.

        Raises:
            UpstreamError: the server's status and body, or why there is none.
        """
        dialect = self._dialect(context)
        body = await self._http.post(
            self._format.path, self._asked(request, context, stream=False), headers=self._headers(context)
        )
        native = self._http.parsed(body)
        field, kind = self._format.kind
        if native.get(field) != kind:
            raise self._http.broken(f"answered what is no {self._format.dialect}")
        try:
            answer = dialect.chat_answer(native)
        except InferenceError as error:
            raise self._http.told(error) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._http.broken(f"answered what is no {self._format.dialect}: {error!r}") from error
        return {**answer, NATIVE: body}

    async def stream(self, request: Mapping[str, Any], context: CallContext) -> AsyncGenerator[Json]:
        """Pass a call through; each event comes with the canonical chunks that it says.

        Raises:
            UpstreamError: the same; also when the stream ends before its last event.
        """
        reader = self._dialect(context).reader()
        asked = self._asked(request, context, stream=True)
        headers = self._headers(context)
        async with (
            self._http.posted_events(self._format.path, asked, headers=headers) as events,
            aclosing(events),
        ):
            async for event in events:
                is_last = event.event in self._format.last_events
                data = encode(None if event.event == "message" else event.event, event.data)
                for chunk in self._chunks(reader, event) or [{"choices": []}]:
                    yield {**chunk, NATIVE: NativeEvent(data=data, last=is_last)}
                    data = b""  # an event that says several chunks is sent once
                if is_last:
                    return
        raise self._http.broken("ended its stream before the end")

    async def embed(self, body: Mapping[str, Any]) -> Json:
        """Refuse: these formats have no embeddings.

        Raises:
            UpstreamError: 404, always.
        """
        message = f"{self._http.url} has no embeddings: model {body.get('model')} is served as {self._format.dialect}"
        raise UpstreamError(message, status=404)

    async def probe(self) -> bool:
        """Whether the server lists its models."""
        return await self._http.probe()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _dialect(self, context: CallContext) -> NativeDialect:
        if not self.takes(context):
            raise CallRefusedError(
                f"{self._http.url} speaks {self._format.dialect} alone", status=400, code="wrong_dialect"
            )
        return cast("NativeDialect", context.dialect)

    def _headers(self, context: CallContext) -> dict[str, str]:
        passed = {name: context.headers[name] for name in _PASSED_HEADERS if name in context.headers}
        return {**self._format.headers, **passed}

    def _asked(self, request: Mapping[str, Any], context: CallContext, *, stream: bool) -> Json:
        """The client's body with the model's name and the forced parameters in the format's own words."""
        asked = {**context.native, "model": self._model or request["model"]}
        for name, value in context.forced.items():
            if name in _ONE_UNASKED and value == 1:
                asked.pop(name, None)
            elif name in _LIMITS:
                asked[self._format.limit] = value
            elif name in self._format.known:
                asked[name] = value
            elif name == "stop" and self._format.stop is not None:
                asked[self._format.stop] = [value] if isinstance(value, str) else value
            elif name not in _NOT_SAID:
                message = f"{name}: forced by the resources, and {self._format.dialect} has no such parameter"
                raise CallRefusedError(message, status=400, code="unsupported_value", param=name)
        if stream:
            asked["stream"] = True
        else:
            asked.pop("stream", None)
        return asked

    def _chunks(self, reader: NativeReader, event: Event) -> list[Json]:
        try:
            return reader.event(event.event, self._http.parsed(event.data))
        except UpstreamError:
            raise
        except InferenceError as error:
            raise self._http.told(error) from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self._http.broken(f"streamed what is no {self._format.dialect}: {error!r}") from error
