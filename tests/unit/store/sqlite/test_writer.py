"""Group commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from agl.errors import ConflictError, StoreError, StoreUnavailableError
from agl.store.sqlite.writer import Operation, Transaction, Writer


class Log:
    """Counts transactions."""

    def __init__(self) -> None:
        self.committed: list[Transaction] = []
        self.sweeps: list[float] = []
        self.now = 0.0


def writer(db: sqlite3.Connection, log: Log) -> Writer:
    return Writer(
        db,
        clock=lambda: log.now,
        new_id=lambda prefix: prefix,
        sweep=lambda transaction: log.sweeps.append(transaction.now),
        committed=log.committed.append,
    )


def put(name: str, then: Callable[[Transaction], Any] | None = None) -> Operation[int]:
    """Return an operation that inserts a row and does something else."""

    def operation(transaction: Transaction) -> int:
        transaction.db.execute("INSERT INTO run VALUES (NULL, ?, '', '', '', NULL, '', 0, NULL)", (name,))
        if then is not None:
            then(transaction)
        return transaction.position()

    return operation


def names(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT run_id FROM run ORDER BY position")]


def refuse(_: Transaction) -> None:
    raise ConflictError("no")


async def test_what_is_submitted_together_is_one_transaction(db: sqlite3.Connection) -> None:
    log = Log()
    one = writer(db, log)
    answers = [one.submit(put(f"r{number}")) for number in range(10)]
    assert await asyncio.gather(*answers) == list(range(1, 11))
    assert len(log.committed) == 1
    await one.submit(put("r10"))
    assert len(log.committed) == 2
    await one.close()
    assert names(db) == [f"r{number}" for number in range(11)]


async def test_an_operation_that_fails_half_way_leaves_nothing_and_hurts_nobody(
    db: sqlite3.Connection,
) -> None:
    log = Log()
    one = writer(db, log)

    def tell(transaction: Transaction) -> None:
        transaction.arrived.append("run")
        refuse(transaction)

    results = await asyncio.gather(
        one.submit(put("a")),
        one.submit(put("b", tell)),
        one.submit(refuse),
        one.submit(put("a")),
        one.submit(lambda transaction: transaction.row("SELECT nonsense")),
        one.submit(put("c")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [
        int,
        ConflictError,
        ConflictError,
        StoreError,
        StoreError,
        int,
    ]
    assert names(db) == ["a", "c"]
    assert log.committed[0].arrived == []
    await one.close()


async def test_an_unforeseen_error_is_the_callers_and_the_writer_lives(db: sqlite3.Connection) -> None:
    one = writer(db, Log())

    def wrong(_: Transaction) -> None:
        raise AssertionError("a bug")

    with pytest.raises(AssertionError, match="a bug"):
        await one.submit(wrong)
    await one.submit(put("a"))
    await one.close()
    assert names(db) == ["a"]


async def test_a_call_given_up_before_its_turn_is_not_made(db: sqlite3.Connection) -> None:
    one = writer(db, Log())
    given_up, kept = one.submit(put("a")), one.submit(put("b"))
    given_up.cancel()
    await kept
    await one.close()
    assert names(db) == ["b"]


async def test_a_result_that_nobody_receives_is_undone(db: sqlite3.Connection) -> None:
    one = writer(db, Log())

    def undo(_: int) -> Operation[None]:
        return lambda transaction: transaction.db.execute("DELETE FROM run WHERE run_id = 'a'") and None

    answer: list[asyncio.Future[int]] = []
    loop = asyncio.get_running_loop()
    running = asyncio.Event()

    def give_up(_: Transaction) -> None:
        loop.call_soon_threadsafe(answer[0].cancel)
        loop.call_soon_threadsafe(running.set)

    answer.append(one.submit(put("a", give_up), undo=undo))
    await running.wait()
    await one.close()
    assert answer[0].cancelled()
    assert names(db) == []


async def test_the_sweep_comes_before_the_first_operation_at_the_deadline(db: sqlite3.Connection) -> None:
    db.execute(
        "INSERT INTO attempt (attempt_id, rollout, sequence_id, status, started_at, last_heartbeat_at, deadline)"
        " VALUES ('a', 1, 1, 'running', 0, 0, 3600)"
    )
    log = Log()
    one = writer(db, log)
    await one.submit(put("a"))
    assert log.sweeps == []
    log.now = 3600.0
    await one.submit(put("b"))
    assert log.sweeps == [3600.0]
    await one.close()


async def test_closing_finishes_what_was_submitted(db: sqlite3.Connection) -> None:
    one = writer(db, Log())
    answers = [one.submit(put(f"r{number}")) for number in range(2000)]
    await one.close()
    assert all(answer.done() for answer in answers)
    assert len(names(db)) == 2000
    with pytest.raises(StoreUnavailableError):
        one.submit(put("late"))


async def test_a_store_belongs_to_one_event_loop(db: sqlite3.Connection) -> None:
    one = writer(db, Log())

    async def elsewhere() -> None:
        with pytest.raises(StoreError, match="event loop"):
            one.submit(put("a"))

    await asyncio.to_thread(asyncio.run, elsewhere())
    await one.close()
