"""Spans as they lie in the table."""

from __future__ import annotations

from pathlib import Path

from agl.store.sqlite import rollouts, spans
from agl.store.sqlite.connection import open_database
from agl.store.sqlite.writer import Transaction
from agl.types import RolloutRequest, Span
from agl.types.packing import packed_floats, packed_ids


def test_tokens_are_stored_at_under_ten_bytes_each(transaction: Transaction, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    transaction.db = open_database(str(path), now=1.0)
    held = rollouts.start_rollout(transaction, RolloutRequest(task="t"), "w")
    key = {"rollout_id": held.rollout.rollout_id, "attempt_id": held.attempt.attempt_id}
    call = {
        "agl.prompt_token_ids": packed_ids(range(1500)),
        "agl.response_token_ids": packed_ids(range(500)),
        "agl.response_logprobs": packed_floats([-0.5] * 500),
    }
    made = [
        Span(span_id=f"{n:016x}", trace_id="ab" * 16, name="chat p", attributes=call, start_time_ns=1, **key)
        for n in range(200)
    ]
    spans.add(transaction, made)
    transaction.db.close()
    num_tokens = 200 * 2000
    assert path.stat().st_size / num_tokens < 10


def test_ids_lie_as_bytes_and_owners_as_numbers(transaction: Transaction) -> None:
    held = rollouts.start_rollout(transaction, RolloutRequest(task="t", run_id="r"), "w")
    given = Span(
        span_id="00f067aa0ba902b7",
        trace_id="ab" * 16,
        name="n",
        start_time_ns=1,
        rollout_id=held.rollout.rollout_id,
        attempt_id=held.attempt.attempt_id,
    )
    spans.add(transaction, [given])
    found = transaction.row(
        "SELECT typeof(trace_id), typeof(span_id), typeof(rollout), typeof(attempt), run_id, status, events, resource"
        " FROM span"
    )
    assert found == ("blob", "blob", "integer", "integer", "r", None, None, None)


def test_one_batch_numbers_an_attempt_named_in_two_ways_only_once(transaction: Transaction) -> None:
    held = rollouts.start_rollout(transaction, RolloutRequest(task="t"), "w")
    base = Span(span_id="1", trace_id="t", name="n", start_time_ns=1, attempt_id=held.attempt.attempt_id)
    other = base.model_copy(update={"span_id": "2", "rollout_id": held.rollout.rollout_id})
    stored = spans.add(transaction, [base, other, base.model_copy(update={"span_id": "3"})])
    assert [one.sequence_id for one in stored] == [1, 2, 3]
    key = (held.rollout.rollout_id, held.attempt.attempt_id)
    assert spans.sequence_ids(transaction, [key, key]) == [4, 5]
    assert spans.sequence_ids(transaction, []) == []
    assert spans.add(transaction, []) == []
