"""Fakes of the proxy's two neighbours, the store and the upstream, and a client that speaks ASGI without a socket."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from answer_chunks import chunks_from_answer

from agl.errors import NotFoundError
from agl.proxy.app import ProxyApp
from agl.proxy.prices import Prices
from agl.types import Attempt, NamedResources, Page, ProxyLLM, Rollout, Span

CHAT = "/rollout/r1/attempt/a1/v1/chat/completions"
HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


def attempt(attempt_id: str, sequence_id: int, status: str = "running") -> Attempt:
    times = {"started_at": 0.0, "last_heartbeat_at": 0.0}
    return Attempt(attempt_id=attempt_id, rollout_id="r1", sequence_id=sequence_id, status=status, **times)


def resources(llm: Any, **others: Any) -> NamedResources:
    return NamedResources(resources_id="v1", version=1, resources={"llm": llm, **others}, created_at=0.0)


def chat_answer(number: int, num_choices: int = 1) -> dict[str, Any]:
    """Answer ``number`` has the response ids 10*number + 0, 1, ... in choice 0, 10*number + 1, ... in choice 1."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": f"answer {number}.{index}"},
            "finish_reason": "stop",
            "token_ids": [10 * number + index, 2],
            "logprobs": {"content": [{"token": "x", "logprob": -0.5}, {"token": "y", "logprob": -0.25}]},
        }
        for index in range(num_choices)
    ]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "choices": choices,
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2 * num_choices,
            "total_tokens": 3 + 2 * num_choices,
        },
        "prompt_token_ids": [7, 8, 9],
        "policy_version": 4,
    }


class FakeStore:
    """One rollout ``r1`` with attempts, resources and spans in lists. ``failure`` is raised by the next operations."""

    def __init__(self) -> None:
        self.rollouts = {
            "r1": Rollout(rollout_id="r1", task=1, resources_id="v1", created_at=0.0, status="running")
        }
        self.attempts = {"r1": [attempt("a1", 1)]}
        self.resources = {"v1": resources(ProxyLLM(base_url="http://proxy", model="policy"))}
        self.spans: list[Any] = []
        self.batches: list[int] = []
        self.reads: list[str] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout:
        self._read("rollout")
        if rollout_id not in self.rollouts:
            raise NotFoundError(f"no rollout {rollout_id}")
        return self.rollouts[rollout_id]

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        self._read("attempt")
        if rollout_id not in self.attempts:
            raise NotFoundError(f"no rollout {rollout_id}")
        return self.attempts[rollout_id][-1] if self.attempts[rollout_id] else None

    async def query_attempts(self, query: Any) -> Page[Attempt]:
        self._read("attempts")
        return Page[Attempt](items=self.attempts[query.rollout_id])

    async def get_resources_by_id(self, resources_id: str) -> NamedResources:
        self._read("resources")
        return self.resources[resources_id]

    async def get_latest_resources(self, *, run_id: str | None = None) -> NamedResources | None:
        self._read("latest_resources")
        return self.resources["v1"]

    async def add_many_spans(self, spans: list[Any]) -> list[Any]:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.batches.append(len(spans))
        known = {span.span_id for span in self.spans}
        self.spans.extend(span for span in spans if span.span_id not in known)
        return list(spans)

    async def query_spans(self, query: Any) -> Page[Span]:
        self._read("spans")
        return Page[Span](items=[s for s in self.spans if s.name.startswith(query.name_prefix or "")])

    def _read(self, what: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.reads.append(what)


class FakeUpstream:
    """Answers at once, or when ``gate`` opens, or with ``failure``."""

    model = "policy"

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.cancelled = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.answer: Any = None

    async def complete_chat(self, request: Mapping[str, Any]) -> Any:
        self.requests.append(dict(request))
        self.asked.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return (
            self.answer if self.answer is not None else chat_answer(len(self.requests), request.get("n") or 1)
        )

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        for chunk in chunks_from_answer(await self.complete_chat(request)):
            yield chunk


@dataclass
class Reply:
    """What an ASGI client has seen."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    complete: bool = False
    """The response's end was sent."""

    @property
    def json(self) -> Any:
        return orjson.loads(self.content)


class AsgiClient:
    """Sends one request to an ASGI app; ``leave`` closes the connection, and it reads while ``reading`` is set."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.left = asyncio.Event()
        self.reply = Reply()
        self.reading = asyncio.Event()
        self.reading.set()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        reply = self.reply
        parts = [body] if isinstance(body, bytes) else list(body)

        async def receive() -> dict[str, Any]:
            if parts and parts[0] is not None:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await self.left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await self.reading.wait()
            if self.left.is_set():
                return
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                reply.content += message["body"]
                reply.complete = not message.get("more_body", False)

        raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": raw}
        await self.app(scope, receive, send)
        return reply

    async def chat(self, chat: Mapping[str, Any] | None = None, *, path: str = CHAT, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("POST", path, orjson.dumps(chat or HELLO), sent)

    def leave(self) -> None:
        self.left.set()
        self.reading.set()


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def upstream() -> FakeUpstream:
    return FakeUpstream()


@pytest.fixture
def answer_of() -> Any:
    return chat_answer


@pytest.fixture
def attempt_of() -> Any:
    return attempt


@pytest.fixture
def resources_of() -> Any:
    return resources


@pytest.fixture(scope="session")
def prices() -> Prices:
    """Shared: reading the map of all models takes longer than a call."""
    return Prices()


@pytest.fixture
def app(store: FakeStore, upstream: FakeUpstream, prices: Prices) -> ProxyApp:
    settings = {
        "secret": "s3cret",
        "needs_key": False,
        "max_body_bytes": 1000,
        "upstream_timeout_seconds": 5.0,
        "prices": prices,
    }
    return ProxyApp(store, upstream, **settings)  # type: ignore[arg-type]


@pytest.fixture
def client(app: ProxyApp) -> AsgiClient:
    return AsgiClient(app)


@pytest.fixture
def client_of() -> type[AsgiClient]:
    return AsgiClient
