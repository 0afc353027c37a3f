"""Workers and their status."""

from __future__ import annotations

import inspect

from agl.store.base import WorkerRegistry
from agl.store.sqlite import workers
from agl.store.sqlite.writer import Transaction


def test_a_worker_is_offline_when_it_is_no_longer_active() -> None:
    default = inspect.signature(WorkerRegistry.get_active_workers).parameters["within_seconds"].default
    assert default == workers.OFFLINE_SECONDS


def test_stats_stay_when_a_heartbeat_brings_none(transaction: Transaction) -> None:
    workers.register(transaction, "w", "h", 1)
    workers.heartbeat(transaction, "w", [], {"cpu": 1})
    workers.heartbeat(transaction, "w", [], None)
    (worker,) = workers.active(transaction.db, transaction.now, 1.0)
    assert worker.stats == {"cpu": 1}
    workers.heartbeat(transaction, "w", [], {})
    (worker,) = workers.active(transaction.db, transaction.now, 1.0)
    assert worker.stats == {}
