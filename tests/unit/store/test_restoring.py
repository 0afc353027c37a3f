"""Which stores take in records of others."""

from agl.store.restoring import Restores
from agl.store.sqlite import InMemoryLightningStore


def test_the_sqlite_stores_take_in_the_records_of_others() -> None:
    assert isinstance(InMemoryLightningStore(), Restores)
    assert not isinstance(object(), Restores)
