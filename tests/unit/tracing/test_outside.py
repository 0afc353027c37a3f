"""What a program emits that an agent started: sent at once, to the attempt that the environment names."""

import http.client
import io
import json
import logging

import agl
from agl.tracing.outside import PostingSink, attempt_here


class Store:
    """Stands for connections to a store; answers what is scripted, then 200."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.posts: list[tuple[str, dict, dict]] = []
        self.connected = 0

    def connect(self, url: object) -> "Store":
        self.connected += 1
        return self

    def request(self, method: str, path: str, body: bytes, headers: dict) -> None:
        self.posts.append((path, json.loads(body), headers))

    def getresponse(self) -> object:
        step = self.script.pop(0) if self.script else 200
        if isinstance(step, Exception):
            raise step

        class Answer(io.BytesIO):
            status = step

        return Answer(b"because")


def sent(store: Store, *, patience_seconds: float = 5.0) -> agl.Span | None:
    """Send one span through a sink of the store."""
    from opentelemetry.sdk.trace import TracerProvider

    sink = PostingSink(
        "http://store:4747/base/",
        "agl1.token",
        "r1",
        "a1",
        parent_id="00000000000000aa",
        connect=store.connect,  # type: ignore[arg-type]
        patience_seconds=patience_seconds,
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(sink)
    provider.get_tracer("t").start_span("work", attributes={"n": 1}).end()
    return None if not store.posts else agl.Span.model_validate(store.posts[-1][1])


def test_a_span_is_posted_when_it_ends_with_its_attempt_and_the_token() -> None:
    store = Store()
    span = sent(store)
    assert span is not None
    assert (span.name, span.rollout_id, span.attempt_id, span.attributes) == ("work", "r1", "a1", {"n": 1})
    assert span.parent_id == "00000000000000aa"
    ((path, _, headers),) = store.posts
    assert path == "/base/v1/spans?answer=ids"
    assert headers["authorization"] == "Bearer agl1.token"


def test_a_store_that_does_not_answer_is_tried_again_over_a_new_connection(caplog) -> None:
    store = Store(http.client.RemoteDisconnected("away"), 503)
    sent(store)
    assert len(store.posts) == 3
    assert len({post[1]["span_id"] for post in store.posts}) == 1
    assert store.connected == 2
    assert not caplog.records


def test_what_the_store_refuses_or_never_takes_is_logged_and_never_raised(caplog) -> None:
    refusing = Store(409)
    sent(refusing)
    assert len(refusing.posts) == 1
    assert "work of rollout r1 is lost: the store answers 409 because" in caplog.text
    sent(Store(*[ConnectionRefusedError("no") for _ in range(9)]), patience_seconds=0.05)
    assert "the store at http://store:4747/base/ does not answer (no)" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_the_environment_names_the_attempt_of_a_process(monkeypatch) -> None:
    for name in ("AGL_STORE_URL", "AGL_ROLLOUT_ID", "AGL_ATTEMPT_ID", "AGL_STORE_TOKEN", "TRACEPARENT"):
        monkeypatch.delenv(name, raising=False)
    assert attempt_here() is None
    monkeypatch.setenv("AGL_STORE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AGL_ROLLOUT_ID", "r7")
    assert attempt_here() is None
    monkeypatch.setenv("AGL_ATTEMPT_ID", "a7")
    trace_id = "0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("TRACEPARENT", f"00-{trace_id}-00000000000000aa-01")
    attempt = attempt_here()
    assert attempt is not None
    assert (attempt.rollout_id, attempt.attempt_id) == ("r7", "a7")
    assert attempt_here() is attempt
    span = attempt.tracer.start_span("x")
    assert f"{span.get_span_context().trace_id:032x}" == trace_id
