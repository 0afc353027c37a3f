from __future__ import annotations

import inspect

from agl.store.base import ResourceBook, RunBook, SpanLog, WorkerRegistry
from agl.store.mongo.records import MongoRecords


def test_calls_take_what_the_contract_says() -> None:
    for contract in (SpanLog, ResourceBook, RunBook, WorkerRegistry):
        for name in contract.__abstractmethods__:
            wanted = inspect.signature(getattr(contract, name))
            assert inspect.signature(getattr(MongoRecords, name)) == wanted, name
