"""Dialects: a client's wire format on one side, the canonical chat call on the other.

The canonical call is OpenAI's chat completion with vLLM's names for the exact ids. A request is its body; an answer is
its ``chat.completion``; a stream is its ``chat.completion.chunk`` objects. Everything behind a dialect (routing,
upstreams, records, budgets) knows only these, so a new wire format is one new module here.

A stream's chunks: ``prompt_token_ids`` on the first; ``choices[i].delta`` as in OpenAI's; beside it
``choices[i].token_ids`` (the ids that this chunk sampled) and ``choices[i].logprobs.content`` (one entry an id);
``choices[i].finish_reason`` on the choice's last; a last chunk with empty ``choices`` and ``usage``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agl.proxy.refusal import CallRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A client's request, read."""

    chat: dict[str, Any]
    """The canonical request; without ``stream``."""
    stream: bool
    native: dict[str, Any] = field(default_factory=dict[str, Any])
    """The body as the client sent it: for upstreams of the same format, and for wording the answer."""
    native_only: CallRefusedError | None = None
    """Raise it where the upstream is not of the same format: the request asks for what only the provider can do."""


class EventWriter(Protocol):
    """Words one streamed answer, chunk by chunk. Holds the state of one call."""

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the events that a canonical chunk becomes; may be empty."""
        ...

    def end(self, answer: Mapping[str, Any]) -> bytes:
        """Return the events that end the stream; ``answer`` is the whole canonical answer.

        Where no chunk came before, they are the events of the whole answer: so a stream is repeated from its record.
        The client takes the first of them as the end, so the call is durable before they are sent.
        """
        ...

    def error(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return the events that tell of a failure in mid-stream, in the client's format."""
        ...


class Dialect(Protocol):
    """One wire format. Stateless."""

    @property
    def name(self) -> str:
        """``openai.chat``, ``openai.completions``, ``openai.responses``, ``anthropic.messages``."""
        ...

    def request(self, body: bytes) -> ClientRequest:
        """Read a client's body.

        Raises:
            CallRefusedError: 400, what is wrong with which field.
        """
        ...

    def answer(self, request: ClientRequest, answer: Mapping[str, Any]) -> bytes:
        """Return the body for a canonical answer, without what the client did not ask for."""
        ...

    def events(self, request: ClientRequest) -> EventWriter:
        """Return the writer of a streamed answer."""
        ...

    def error_body(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return an error in this format; ``body`` is the upstream's own error (OpenAI's shape), where there is one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedExchange:
    """A call that a memory kept, read back from its span."""

    name: str
    """By which later calls refer to it."""
    attributes: Mapping[str, Any]
    """Of the span; what ``Memory.remember`` returned is among them."""
    messages: Sequence[Mapping[str, Any]]
    """Of the canonical request, as it was resolved."""
    answer: Mapping[str, Any]
    """The canonical answer."""


class Memory(Protocol):
    """What a dialect keeps of an attempt's calls, because later ones refer to them."""

    @property
    def num_bytes(self) -> int:
        """How much it holds."""
        ...

    def resolved(self, request: ClientRequest) -> ClientRequest:
        """Return the request with what it refers to.

        Raises:
            CallRefusedError: 400, that is not known.
        """
        ...

    def remember(self, request: ClientRequest, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep a request, as it was resolved, and its canonical answer.

        Returns the attributes by which the call's span can be restored, none where the call was not kept.
        """
        ...

    def lacks(self, request: ClientRequest) -> bool:
        """Return whether the request refers to what is not known here, but may be recorded."""
        ...

    def restore(self, request: ClientRequest, exchanges: Sequence[RecordedExchange]) -> None:
        """Keep recorded calls of the attempt, above all what the request refers to."""
        ...


class NativeReader(Protocol):
    """Reads a native stream back into canonical chunks, for the record of calls that were passed through."""

    def event(self, event: str, data: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the canonical chunks of one server-sent event."""
        ...


class NativeDialect(Dialect, Protocol):
    """A dialect whose provider can also be the upstream: calls pass through unchanged and are recorded canonically."""

    def chat_answer(self, native: Mapping[str, Any]) -> dict[str, Any]:
        """Return a native answer as the canonical one."""
        ...

    def reader(self) -> NativeReader:
        """Return the reader of a native stream."""
        ...
