"""Spans in SQL: numbered per attempt, stored once, kept whatever became of the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from agl.errors import InvalidRequestError, NotFoundError
from agl.store import lifecycle
from agl.store.sqlite.attempts import FIRST_SIGN
from agl.store.sqlite.blobs import release
from agl.store.sqlite.rows import (
    NO_ATTEMPT,
    SPAN_COLUMNS,
    SPAN_TABLES,
    config_from_text,
    insert_rows,
    spans_from_rows,
    stored_hex,
)
from agl.store.sqlite.span_texts import SpanTexts, span_texts, stow_long
from agl.store.sqlite.tally import add_spans
from agl.store.sqlite.terms import span_terms
from agl.store.sqlite.writer import Transaction
from agl.types import AttemptStatus, RolloutConfig, Span

_INSERT = (
    "INSERT INTO span (position, trace_id, span_id, parent_id, rollout, attempt, run_id, sequence_id, name, kind,"
    " status, attributes, events, links, resource, start_time_ns, end_time_ns, packed, stored_at)"
)
_INSERT_TERMS = "INSERT INTO span_term (rowid, terms)"
_ONCE = "ON CONFLICT (trace_id, span_id) DO NOTHING"
_OWNER = (
    "SELECT r.rollout_id, a.rollout, a.position, r.run_id, a.next_span, a.status, a.started_at, r.config"
    ", a.attempt_id FROM attempt a JOIN rollout r ON r.position = a.rollout WHERE a.attempt_id IN"
)
_SAVE_OPEN = (
    "UPDATE attempt SET next_span = column2, status = 'running', last_heartbeat_at = ?, lease = column3,"
    " deadline = column4 FROM (VALUES {rows}) WHERE position = column1"
)
_AT_ONCE = 64
"""Attempts a statement. Each statement hands the interpreter lock over twice."""


@dataclass(slots=True, kw_only=True)
class _Owner:
    """Whose spans these are. Without an attempt: a span of a rollout, or of nobody."""

    rollout_id: str | None = None
    rollout: int | None = None
    attempt: int = NO_ATTEMPT
    run_id: str | None = None
    next_span: int = 0
    status: AttemptStatus = "cancelled"
    started_at: float = 0.0
    config: RolloutConfig | None = None
    taken: set[int] = field(default_factory=set[int])
    """Numbers that spans of this operation took."""

    def number(self, transaction: Transaction, wanted: int | None) -> int:
        """Return the span's number: the wanted one where it is free, else the next."""
        if wanted is not None:
            if wanted < 1:
                raise InvalidRequestError(
                    f"sequence_id {wanted}: the spans of an attempt are numbered from 1"
                )
            if wanted >= self.next_span or (wanted not in self.taken and self._is_free(transaction, wanted)):
                return self._take(wanted)
        return self._take(self.next_span)

    def _take(self, number: int) -> int:
        self.taken.add(number)
        self.next_span = max(self.next_span, number + 1)
        return number

    def life(self, now: float) -> tuple[float | None, float | None]:
        """Return an open attempt's lease and deadline after this sign of life."""
        assert self.config is not None
        lease = lifecycle.lease_end(self.config, now)
        return lease, lifecycle.next_deadline(self.config, started_at=self.started_at, lease=lease)

    def _is_free(self, transaction: Transaction, wanted: int) -> bool:
        taken = transaction.row(
            "SELECT 1 FROM span WHERE rollout = ? AND attempt = ? AND sequence_id = ?",
            (self.rollout, self.attempt, wanted),
        )
        return taken is None


def add(transaction: Transaction, spans: Sequence[Span]) -> list[Span]:
    """Store spans; those stored before are answered as they were. A span of an open attempt is a sign of life."""
    owners = _find_owners(transaction, [(span.rollout_id, span.attempt_id) for span in spans])
    rows, answers = _rows_of(transaction, spans, owners)
    _save_owners(transaction, owners)
    if _insert_new(transaction, spans, rows) < len(rows):
        return [_stored(transaction, row[1], row[2]) for row in rows]
    return answers


def restore(transaction: Transaction, spans: Sequence[Span]) -> int:
    """Store spans as history: no sign of life of any attempt. Those stored before stay; return how many are new."""
    new = [span for span in spans if not _is_stored(transaction, span)]
    owners = _find_owners(transaction, [(span.rollout_id, span.attempt_id) for span in new])
    for owner in owners:
        owner.status = "cancelled"  # as for spans of an attempt that has ended
    rows, _ = _rows_of(transaction, new, owners)
    _save_owners(transaction, owners)
    return _insert_new(transaction, new, rows)


def _is_stored(transaction: Transaction, span: Span) -> bool:
    ids = (stored_hex(span.trace_id), stored_hex(span.span_id))
    return transaction.row("SELECT 1 FROM span WHERE trace_id = ? AND span_id = ?", ids) is not None


def _rows_of(
    transaction: Transaction, spans: Sequence[Span], owners: Sequence[_Owner]
) -> tuple[list[tuple[Any, ...]], list[Span]]:
    """Number the spans; return the rows of the table, and the spans as they are stored."""
    texts = [span_texts(span) for span in spans]
    stow_long(transaction.db, spans, texts)
    rows: list[tuple[Any, ...]] = []
    answers: list[Span] = []
    for span, owner, text in zip(spans, owners, texts, strict=True):
        number = None if owner.attempt == NO_ATTEMPT else owner.number(transaction, span.sequence_id)
        rows.append(_row_of(transaction, span, owner, number, text))
        answers.append(span.changed(rollout_id=owner.rollout_id, sequence_id=number))
    return rows, answers


def _insert_new(transaction: Transaction, spans: Sequence[Span], rows: Sequence[tuple[Any, ...]]) -> int:
    """Write the rows whose spans are not stored yet, count them and make them findable; return how many."""
    added = list(zip(spans, rows, strict=True))
    if insert_rows(transaction.db, _INSERT, rows, tail=_ONCE) < len(rows):
        taken = _release_unused(transaction, rows)
        added = [one for one in added if one[1][0] in taken]
    _index(transaction, added)
    return len(added)


def sequence_ids(transaction: Transaction, attempts: Sequence[tuple[str, str]]) -> list[int]:
    """Allocate the next number of each (rollout_id, attempt_id), in the order given."""
    owners = _find_owners(transaction, attempts)
    numbers = [owner.number(transaction, None) for owner in owners]
    _save_owners(transaction, owners)
    return numbers


def _row_of(
    transaction: Transaction, span: Span, owner: _Owner, number: int | None, text: SpanTexts
) -> tuple[Any, ...]:
    position = transaction.position()
    return (
        position,
        stored_hex(span.trace_id),
        stored_hex(span.span_id),
        None if span.parent_id is None else stored_hex(span.parent_id),
        owner.rollout,
        owner.attempt,
        owner.run_id,
        position if number is None else number,
        span.name,
        span.kind,
        *text[:5],
        span.start_time_ns,
        span.end_time_ns,
        None if text.packed is None else bytearray(text.packed),
        transaction.now if owner.rollout is None else None,
    )


def _release_unused(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> set[int]:
    """Take back the references of rows that the table did not take, because their spans were stored before.

    Returns:
        Positions of the rows that it took.
    """
    taken: set[int] = set()
    for row in rows:
        if transaction.row("SELECT 1 FROM span WHERE position = ?", (row[0],)) is None:
            release(transaction.db, (row[11], row[12], row[14]))
        else:
            taken.add(row[0])
    return taken


def _index(transaction: Transaction, added: Sequence[tuple[Span, tuple[Any, ...]]]) -> None:
    """Count new spans and make them findable."""
    add_spans(transaction.db, (row[6] for _, row in added))
    found_by = [(row[0], span_terms(row[6], span.name, span.attributes)) for span, row in added]
    insert_rows(transaction.db, _INSERT_TERMS, found_by)


def _find_owners(transaction: Transaction, keys: Sequence[tuple[str | None, str | None]]) -> list[_Owner]:
    """Return one owner a key; equal attempts share theirs."""
    by_key: dict[tuple[str | None, str | None], _Owner] = {}
    distinct = dict.fromkeys(keys)
    by_attempt = _attempt_owners(
        transaction, list({attempt for _, attempt in distinct if attempt is not None})
    )
    for key in distinct:
        rollout_id, attempt_id = key
        if attempt_id is None:
            by_key[key] = _Owner() if rollout_id is None else _rollout_owner(transaction, rollout_id)
            continue
        owner = by_attempt.get(attempt_id)
        if owner is None:
            raise NotFoundError(f"no attempt has the id {attempt_id!r}")
        if rollout_id is not None and owner.rollout_id != rollout_id:
            raise NotFoundError(f"rollout {rollout_id!r} has no attempt {attempt_id!r}")
        by_key[key] = owner
    return [by_key[key] for key in keys]


def _attempt_owners(transaction: Transaction, attempt_ids: Sequence[str]) -> dict[str, _Owner]:
    owners: dict[str, _Owner] = {}
    for start in range(0, len(attempt_ids), _AT_ONCE):
        part = attempt_ids[start : start + _AT_ONCE]
        for row in transaction.rows(f"{_OWNER} ({','.join('?' * len(part))})", tuple(part)):
            owners[row[8]] = _Owner(
                rollout_id=row[0],
                rollout=row[1],
                attempt=row[2],
                run_id=row[3],
                next_span=row[4],
                status=row[5],
                started_at=row[6],
                config=config_from_text(row[7]),
            )
    return owners


def _rollout_owner(transaction: Transaction, rollout_id: str) -> _Owner:
    row = transaction.row("SELECT position, run_id FROM rollout WHERE rollout_id = ?", (rollout_id,))
    if row is None:
        raise NotFoundError(f"no rollout has the id {rollout_id!r}")
    return _Owner(rollout_id=rollout_id, rollout=row[0], run_id=row[1])


def _save_owners(transaction: Transaction, owners: Sequence[_Owner]) -> None:
    """Store the attempts' next numbers; for an open attempt this is a sign of life."""
    db = transaction.db
    alive: list[tuple[Any, ...]] = []
    for owner in {id(owner): owner for owner in owners}.values():
        if owner.attempt == NO_ATTEMPT:
            continue
        if lifecycle.is_terminal(owner.status):
            db.execute(
                "UPDATE attempt SET next_span = ? WHERE position = ?", (owner.next_span, owner.attempt)
            )
            continue
        alive.append((owner.attempt, owner.next_span, *owner.life(transaction.now)))
        if owner.status == "preparing":
            db.execute(FIRST_SIGN, (owner.rollout,))
    for start in range(0, len(alive), _AT_ONCE):
        part = alive[start : start + _AT_ONCE]
        sql = _SAVE_OPEN.format(rows=",".join(["(?,?,?,?)"] * len(part)))
        db.execute(sql, (transaction.now, *chain.from_iterable(part)))


def _stored(transaction: Transaction, trace_id: bytearray | str, span_id: bytearray | str) -> Span:
    row = transaction.row(
        f"SELECT {SPAN_COLUMNS} FROM {SPAN_TABLES} WHERE s.trace_id = ? AND s.span_id = ?",
        (trace_id, span_id),
    )
    assert row is not None, "the span was just inserted, or stopped the insert"
    return spans_from_rows(transaction.db, [row])[0]
