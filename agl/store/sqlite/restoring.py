"""Restoring: what another store recorded comes in as it is there, ids, times and ends included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agl.errors import ConflictError, InvalidRequestError
from agl.store.sqlite import rollouts as rollout_rows
from agl.store.sqlite import runs as run_rows
from agl.store.sqlite import spans as span_rows
from agl.store.sqlite.access import Access
from agl.store.sqlite.rows import config_text, error_text, insert_rows, json_list, json_text
from agl.store.sqlite.writer import Transaction
from agl.types import Attempt, RecordedRollout, Run, Span
from agl.types.record import Identifier

_IDENTIFIER: TypeAdapter[str] = TypeAdapter(Identifier)
_INSERT_ATTEMPT = (
    "INSERT INTO attempt (attempt_id, rollout, sequence_id, worker_id, status, started_at, last_heartbeat_at,"
    " finished_at, error, lease, position, rollout_created_at)"
)


class SqliteRestoring:
    """Records of another store come in."""

    _access: Access

    async def restore(
        self,
        *,
        runs: Sequence[Run] = (),
        rollouts: Sequence[RecordedRollout] = (),
        spans: Sequence[Span] = (),
    ) -> dict[str, int]:
        """Store runs, rollouts with their attempts, and spans, all or none; what is known by its id stays as it is."""
        given = (list(runs), list(rollouts), list(spans))
        _refuse_bad_ids(*given[:2])
        return await self._access.write(lambda transaction: _restored(transaction, *given))


def _refuse_bad_ids(runs: Sequence[Run], rollouts: Sequence[RecordedRollout]) -> None:
    """Check that every id fits one segment of a URL's path, as the store's other calls ask."""
    ids = [run.run_id for run in runs]
    for rollout in rollouts:
        ids += [rollout.rollout_id, *(attempt.attempt_id for attempt in rollout.attempts)]
    for one in ids:
        try:
            _IDENTIFIER.validate_python(one)
        except ValidationError as error:
            raise InvalidRequestError(f"{one!r} is no id of a run, rollout or attempt") from error


def _restored(
    transaction: Transaction,
    runs: Sequence[Run],
    rollouts: Sequence[RecordedRollout],
    spans: Sequence[Span],
) -> dict[str, int]:
    new_runs = _add_runs(transaction, runs)
    added = _add_rollouts(transaction, rollouts)
    return {
        "runs": new_runs,
        "rollouts": len(added),
        "attempts": sum(len(rollout.attempts) for rollout in added),
        "spans": span_rows.restore(transaction, spans),
    }


def _add_runs(transaction: Transaction, runs: Sequence[Run]) -> int:
    rows = [
        (
            run.run_id,
            run.name,
            run.command,
            json_text(run.settings, "settings of a run"),
            run.git_commit,
            run.status,
            run.created_at,
            run.finished_at,
            transaction.position(),
        )
        for run in runs
    ]
    head = f"INSERT INTO run ({run_rows.COLUMNS})"
    return insert_rows(transaction.db, head, rows, tail="ON CONFLICT (run_id) DO NOTHING")


def _add_rollouts(transaction: Transaction, rollouts: Sequence[RecordedRollout]) -> list[RecordedRollout]:
    """Write the rollouts that are not known yet, with their attempts, and return them."""
    by_id = {rollout.rollout_id: rollout for rollout in rollouts}
    known = rollout_rows.rollouts_by_id(transaction.db, list(by_id))
    new = [rollout for rollout_id, rollout in by_id.items() if rollout_id not in known]
    for rollout in new:
        _refuse_impossible(rollout)
    _refuse_known_attempts(transaction, [attempt for rollout in new for attempt in rollout.attempts])
    positions = [transaction.position() for _ in new]
    rows = [_rollout_row(rollout, position) for rollout, position in zip(new, positions, strict=True)]
    rollout_rows.insert(transaction, rows)
    attempts = [
        _attempt_row(transaction, attempt, position, rollout.created_at)
        for rollout, position in zip(new, positions, strict=True)
        for attempt in rollout.attempts
    ]
    insert_rows(transaction.db, _INSERT_ATTEMPT, attempts)
    return new


def _refuse_impossible(rollout: RecordedRollout) -> None:
    attempts = rollout.attempts
    if any(attempt.rollout_id != rollout.rollout_id for attempt in attempts):
        raise InvalidRequestError(f"rollout {rollout.rollout_id} has an attempt of another rollout")
    if len({attempt.sequence_id for attempt in attempts}) < len(attempts):
        raise InvalidRequestError(f"two attempts of rollout {rollout.rollout_id} have the same sequence_id")


def _refuse_known_attempts(transaction: Transaction, attempts: Sequence[Attempt]) -> None:
    times = Counter(attempt.attempt_id for attempt in attempts)
    known = transaction.row(
        "SELECT attempt_id FROM attempt WHERE attempt_id IN (SELECT value FROM json_each(?))",
        (json_list(times),),
    )
    twice = known[0] if known else next((one for one, number in times.items() if number > 1), None)
    if twice is not None:
        raise ConflictError(f"attempt {twice} is another rollout's here: the records are of two stores")


def _rollout_row(rollout: RecordedRollout, position: int) -> tuple[Any, ...]:
    return (
        rollout.rollout_id,
        rollout.run_id,
        json_text(rollout.task, f"task of rollout {rollout.rollout_id}"),
        rollout.mode,
        rollout.group_id,
        rollout.resources_id,
        config_text(rollout.config),
        json_text(rollout.metadata, f"metadata of rollout {rollout.rollout_id}"),
        rollout.priority,
        rollout.status,
        rollout.reward,
        json_text(rollout.reward_dimensions, f"reward_dimensions of rollout {rollout.rollout_id}"),
        error_text(rollout.error),
        rollout.created_at,
        rollout.started_at,
        rollout.finished_at,
        rollout.num_attempts,
        None,  # no retry is due
        position,
        None,  # no place in the queue
    )


def _attempt_row(
    transaction: Transaction, attempt: Attempt, rollout: int, rollout_created_at: float
) -> tuple[Any, ...]:
    return (
        attempt.attempt_id,
        rollout,
        attempt.sequence_id,
        attempt.worker_id,
        attempt.status,
        attempt.started_at,
        attempt.last_heartbeat_at,
        attempt.finished_at,
        error_text(attempt.error),
        attempt.lease,
        transaction.position(),
        rollout_created_at,
    )
