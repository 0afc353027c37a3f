"""The JSON columns of spans: short where they can be, exact always."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from agl.store.cutting import LONG
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.store.sqlite.span_texts import span_texts
from agl.types import RolloutQuery, RolloutRequest, Span, SpanEvent, SpanQuery
from agl.types.packing import packed_floats, packed_ids

KEY = st.sampled_from(["agl.prompt_token_ids", "agl.response_logprobs.1", "text", "\x7f"])
VALUE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
    st.lists(st.integers(0, 200_000), max_size=5).map(packed_ids),
    st.sampled_from(["\x7f0", "\x7f\x7f1\x7f", "x" * LONG, '["' + "y" * LONG + '"]']),
    st.sampled_from([[1, "z" * LONG], {"\x7f": "\x7f"}]),
)
ATTRIBUTES = st.dictionaries(KEY, VALUE, max_size=4)


def new_span(number: int, **fields: Any) -> Span:
    return Span(span_id=f"{number:016x}", trace_id="ab" * 16, name="s", start_time_ns=number, **fields)


def test_defaults_take_nothing_and_ids_no_text() -> None:
    ids = packed_ids(range(1000))
    texts = span_texts(new_span(1, attributes={"agl.prompt_token_ids": ids, "a": 1}))
    assert orjson.loads(texts.attributes) == {"agl.prompt_token_ids": "\x7f0", "a": 1}
    assert (texts.status, texts.events, texts.links, texts.resource, texts.is_long) == (
        None,
        None,
        None,
        None,
        False,
    )
    assert len(texts.packed or b"") == 3 + 2 * 1000
    assert span_texts(new_span(1, attributes={"a": "\x7f0"})).is_long
    assert span_texts(new_span(1, resource={"a": "x" * LONG})).is_long


@given(everything=st.lists(st.tuples(ATTRIBUTES, ATTRIBUTES, ATTRIBUTES), min_size=1, max_size=4))
async def test_every_span_comes_back_and_is_found_by_its_attributes(
    everything: list[tuple[Any, Any, Any]],
) -> None:
    spans = [
        new_span(
            number,
            attributes=attributes,
            resource=resource,
            events=(SpanEvent(name="e", time_ns=1, attributes=of_event),) if of_event else (),
        )
        for number, (attributes, resource, of_event) in enumerate(everything)
    ]
    async with InMemoryLightningStore() as store:
        await store.add_many_spans(spans)
        assert await store.add_many_spans(spans) == spans  # again: answered as stored
        found = (await store.query_spans(SpanQuery())).items
        assert found == spans
        assert [list(span.attributes) for span in found] == [list(span.attributes) for span in spans]
        for span in spans:
            for key, value in span.attributes.items():
                matching = (await store.query_spans(SpanQuery(attributes={key: value}))).items
                assert matching == [
                    one for one in spans if key in one.attributes and one.attributes[key] == value
                ]


async def test_a_text_that_is_like_a_reference_is_no_match_for_one() -> None:
    ids, text = packed_ids([1, 2]), "x" * LONG
    async with InMemoryLightningStore() as store:
        await store.add_span(new_span(1, attributes={"agl.prompt_token_ids": ids, "text": text}))
        for key, value in (
            ("agl.prompt_token_ids", "\x7f0"),
            ("text", "\x7f\x7f1\x7f"),
            ("text", "y" * LONG),
        ):
            assert not (await store.query_spans(SpanQuery(attributes={key: value}))).items
        for key, value in (("agl.prompt_token_ids", ids), ("text", text)):
            assert (await store.query_spans(SpanQuery(attributes={key: value}))).items


async def test_rejected_spans_leave_no_long_text() -> None:
    async with InMemoryLightningStore() as store:
        first = new_span(1, attributes={"text": "x" * LONG})
        await store.add_span(first)
        await store.add_many_spans([first, first.model_copy(update={"attributes": {"text": "y" * LONG}})])
        blobs = await store._access.read(lambda db: db.execute("SELECT uses FROM blob").fetchall())
        assert blobs == [(1,)]


async def test_rollouts_and_resources_share_the_long_texts_of_spans() -> None:
    prompt = " ".join(str(random.Random(4).random()) for _ in range(100))
    task = {"messages": [{"role": "system", "content": prompt}], "odd": "\x7f0"}
    async with InMemoryLightningStore() as store:
        made = await store.enqueue_rollout(RolloutRequest(task=task, metadata={"why": prompt}))
        assert (made.task, made.metadata) == (task, {"why": prompt})
        held = await store.dequeue_rollout(worker_id="w")
        assert held is not None
        assert held.rollout.task == task
        named = await store.add_resources({"prompt": prompt})
        assert named.resources["prompt"] == prompt
        assert (await store.get_latest_resources()) == named
        await store.add_span(
            new_span(
                1,
                attributes={"p": prompt, "logprobs": packed_floats([0.5])},
                attempt_id=held.attempt.attempt_id,
            )
        )
        counts = await store._access.read(
            lambda db: db.execute(
                "SELECT uses, length(content) FROM blob JOIN blob_content USING (blob)"
            ).fetchall()
        )
        assert sorted(uses for uses, _ in counts) == [1, 4]  # the odd text; task, metadata, resources, span
        changed = await store.update_rollout(made.rollout_id, metadata={"why": "x" * LONG})
        assert changed.metadata == {"why": "x" * LONG}
        changed = await store.update_rollout(made.rollout_id, metadata={"why": "short"})
        (found,) = (await store.query_rollouts(RolloutQuery())).items
        assert (found.task, found.metadata) == (task, {"why": "short"})
        uses = await store._access.read(
            lambda db: db.execute("SELECT uses FROM blob ORDER BY uses").fetchall()
        )
        assert uses == [(1,), (3,)]


def recorded_call(number: int, rng: random.Random, *, num_prompt: int, num_response: int) -> Span:
    """What the proxy records of a call, with text of 4 to 5 characters a token, which compresses as words do."""
    words = [f"{rng.getrandbits(20):x}" for _ in range(1000)]

    def text(num_tokens: int) -> str:
        return " ".join(rng.choices(words, k=num_tokens * 3 // 4))

    asked = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": text(num_prompt)}]
    return Span(
        span_id=f"{rng.getrandbits(64):016x}",
        trace_id=f"{rng.getrandbits(128):032x}",
        name="chat policy",
        kind="client",
        start_time_ns=1_700_000_000_000_000_000 + number,
        end_time_ns=1_700_000_001_000_000_000 + number,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "policy",
            "gen_ai.request.temperature": 1.0,
            "gen_ai.input.messages": orjson.dumps(asked).decode(),
            "gen_ai.output.messages": orjson.dumps(
                [{"role": "assistant", "content": text(num_response)}]
            ).decode(),
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.usage.input_tokens": num_prompt,
            "gen_ai.usage.output_tokens": num_response,
            "agl.latency_seconds": rng.random(),
            "agl.policy_version": number,
            "agl.prompt_token_ids": packed_ids(rng.choices(range(151_000), k=num_prompt)),
            "agl.response_token_ids": packed_ids(rng.choices(range(151_000), k=num_response)),
            "agl.response_logprobs": packed_floats([-rng.expovariate(2) for _ in range(num_response)]),
        },
    )


async def file_bytes(path: Path, spans: list[Span]) -> int:
    """The size of a store's file with these spans, all of one attempt."""
    async with SqliteLightningStore(str(path)) as store:
        held = await store.start_rollout(RolloutRequest(task=1, run_id="run"))
        for span in spans:
            await store.add_otel_span(held.rollout.rollout_id, held.attempt.attempt_id, span)
    return path.stat().st_size


async def test_a_recorded_call_takes_under_10_bytes_a_token_all_included(tmp_path: Path) -> None:
    rng = random.Random(5)
    spans = [recorded_call(number, rng, num_prompt=1000, num_response=300) for number in range(100)]
    empty = await file_bytes(tmp_path / "empty", [])
    growth = await file_bytes(tmp_path / "calls", spans) - empty
    assert growth / (100 * 1300) < 10  # messages, row and indexes too


async def test_the_tokens_of_a_short_call_take_under_10_bytes_each(tmp_path: Path) -> None:
    rng = random.Random(6)
    spans = [recorded_call(number, rng, num_prompt=60, num_response=20) for number in range(500)]
    bare = [
        span.model_copy(
            update={
                "attributes": {
                    key: value for key, value in span.attributes.items() if "_token_ids" not in key
                }
            }
        )
        for span in spans
    ]
    for span in bare:
        del span.attributes["agl.response_logprobs"]
    growth = await file_bytes(tmp_path / "calls", spans) - await file_bytes(tmp_path / "bare", bare)
    assert growth / (500 * 80) < 10
