"""Group commit: operations that arrive together are one transaction, run on one thread off the event loop.

An operation is a function of a ``Transaction``. It checks before it writes, so an operation that is refused has written
nothing; where one fails half-way all the same, the batch runs again with a savepoint around each operation.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agl.errors import StoreError, StoreUnavailableError
from agl.store.sqlite.failures import store_error

T = TypeVar("T")
MAX_BATCH = 1024
"""Operations a transaction: bounds how long the first waits for the last."""
MAX_TIMER_SECONDS = 3600.0
REFUSALS = (StoreError, sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What one caller's operation may raise without hurting the others of its batch."""


@dataclass(slots=True, kw_only=True)
class Transaction:
    """What an operation works with: the connection, the time, new ids, and a list of what others wait for."""

    db: sqlite3.Connection
    now: float
    new_id: Callable[[str], str]
    positions: itertools.count[int]
    arrived: list[str | None] = field(default_factory=list[str | None])
    """Runs of the rollouts that became claimable, one entry a rollout."""
    finished: list[str] = field(default_factory=list[str])
    """Rollouts that became terminal."""

    def row(self, sql: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query."""
        return self.db.execute(sql, values).fetchone()

    def rows(self, sql: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.db.execute(sql, values).fetchall()

    def position(self) -> int:
        """Return the next number of the store's order."""
        return next(self.positions)


Operation = Callable[[Transaction], T]


@dataclass(slots=True)
class _Pending(Generic[T]):
    operation: Operation[T]
    answer: asyncio.Future[T]
    undo: Callable[[T], Operation[None]] | None
    """Makes the operation that takes the result back, for when the caller left before it came."""


@dataclass(slots=True)
class _Batch:
    transaction: Transaction
    results: list[Any]
    deadline: float | None


class Writer:
    """Runs operations in the order of their submission. Everything but the batch itself happens on the event loop.

    Args:
        db: the connection; the writer owns its transactions.
        clock: Unix seconds.
        new_id: makes an id of a given prefix.
        sweep: applies the watchdog within a transaction.
        committed: is told of every transaction, after its callers have their answers.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        clock: Callable[[], float],
        new_id: Callable[[str], str],
        sweep: Operation[object],
        committed: Callable[[Transaction], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._new_id = new_id
        self._sweep = sweep
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agl-store-writer")
        self._positions = itertools.count(_last_position(db) + 1)
        self._pending: list[_Pending[Any]] = []
        self._running: asyncio.Future[_Batch] | None = None
        self._start_scheduled = False
        self._deadline: float | None = _first_deadline(db)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._set_timer()

    def submit(
        self, operation: Operation[T], *, undo: Callable[[T], Operation[None]] | None = None
    ) -> asyncio.Future[T]:
        """Queue an operation; the future is done when its transaction is committed, or the operation refused."""
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise StoreError("the store belongs to the event loop that opened it: call it from there")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._pending.append(_Pending(operation, answer, undo))
        self._schedule_start()
        return answer

    async def close(self) -> None:
        """Finish what was submitted, then end the thread."""
        while self._pending or self._running is not None:
            self._start()
            if self._running is not None:
                await asyncio.wait((self._running,))
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait=True)

    def _schedule_start(self) -> None:
        # Started from a callback, so that all who were answered by the last batch are in the next one together.
        if self._running is None and not self._start_scheduled:
            self._start_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._start_scheduled = False
        self._pending = [one for one in self._pending if not one.answer.cancelled()]
        if self._running is not None or not self._pending:
            return
        batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
        self._running = self._loop.run_in_executor(self._thread, self._run, [one.operation for one in batch])
        self._running.add_done_callback(lambda done: self._deliver(batch, done))

    def _deliver(self, batch: list[_Pending[Any]], done: asyncio.Future[_Batch]) -> None:
        self._running = None
        error = done.exception()
        if error is not None:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(store_error(error) if isinstance(error, Exception) else error)
            self._schedule_start()
            return
        outcome = done.result()
        for one, result in zip(batch, outcome.results, strict=True):
            if one.answer.done():
                if one.undo is not None and not isinstance(result, Exception):
                    undo = _Pending(one.undo(result), self._loop.create_future(), None)
                    self._pending.append(undo)
            elif isinstance(result, Exception):
                one.answer.set_exception(result)
            else:
                one.answer.set_result(result)
        self._deadline = outcome.deadline
        self._set_timer()
        if self._pending:
            self._schedule_start()
        self._committed(outcome.transaction)

    def _run(self, operations: list[Operation[Any]]) -> _Batch:
        outcome = self._attempt(operations, careful=False)
        return outcome if outcome is not None else self._careful(operations)

    def _careful(self, operations: list[Operation[Any]]) -> _Batch:
        outcome = self._attempt(operations, careful=True)
        assert outcome is not None, "a savepoint takes back what an operation wrote"
        return outcome

    def _attempt(self, operations: list[Operation[Any]], *, careful: bool) -> _Batch | None:
        """Run a batch; None when it was rolled back because an operation failed after it had written."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(
                db=db, now=self._clock(), new_id=self._new_id, positions=self._positions
            )
            if self._deadline is not None and self._deadline <= transaction.now:
                self._sweep(transaction)
            results: list[Any] = []
            for operation in operations:
                result = _guarded(transaction, operation) if careful else _checked(transaction, operation)
                if result is _DIRTY:
                    db.execute("ROLLBACK")
                    return None
                results.append(result)
            deadline = _first_deadline(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return _Batch(transaction, results, deadline)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadline is not None:
            seconds = min(max(self._deadline - self._clock(), 0.001), MAX_TIMER_SECONDS)
            self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._deadline is None or self._closed:
            return
        if self._deadline <= self._clock():
            self.submit(nothing)  # every batch sweeps first when the deadline has come
        else:
            self._set_timer()


_DIRTY = object()
"""The result of an operation that failed after it had written."""


def nothing(transaction: Transaction) -> None:
    """Write nothing: a batch of its own for the sweep."""


def _checked(transaction: Transaction, operation: Operation[Any]) -> Any:
    before = transaction.db.total_changes
    try:
        return operation(transaction)
    except REFUSALS as error:
        _require_transaction(transaction, error)
        return store_error(error) if transaction.db.total_changes == before else _DIRTY


def _guarded(transaction: Transaction, operation: Operation[Any]) -> Any:
    arrived, finished = len(transaction.arrived), len(transaction.finished)
    transaction.db.execute("SAVEPOINT operation")
    try:
        result = operation(transaction)
    except REFUSALS as error:
        _require_transaction(transaction, error)
        transaction.db.execute("ROLLBACK TO operation")
        del transaction.arrived[arrived:], transaction.finished[finished:]
        result = store_error(error)
    transaction.db.execute("RELEASE operation")
    return result


def _require_transaction(transaction: Transaction, error: Exception) -> None:
    """Fail the whole batch where SQLite has rolled it back, as it does when the disk is full."""
    if not transaction.db.in_transaction:
        raise error


def _first_deadline(db: sqlite3.Connection) -> float | None:
    """Return when the watchdog must look next: for an attempt's deadline, or the end of a retry's pause."""
    return db.execute(
        "SELECT min(due) FROM (SELECT min(deadline) AS due FROM attempt WHERE deadline IS NOT NULL"
        " UNION ALL SELECT min(retry_at) FROM rollout WHERE retry_at IS NOT NULL)"
    ).fetchone()[0]


def _last_position(db: sqlite3.Connection) -> int:
    found = db.execute(
        "SELECT max(coalesce((SELECT max(position) FROM rollout), 0), coalesce((SELECT max(position) FROM attempt), 0),"
        " coalesce((SELECT max(position) FROM span), 0), coalesce((SELECT max(position) FROM worker), 0),"
        " coalesce((SELECT max(position) FROM run), 0),"
        " coalesce((SELECT max(queue_position) FROM rollout WHERE queue_position IS NOT NULL), 0))"
    )
    return int(found.fetchone()[0])
