"""A store that is served says where; one that is not has no address."""

from __future__ import annotations

from agl.store.address import Addressable, StoreAddress
from agl.store.client import LightningStoreClient
from agl.store.sqlite import InMemoryLightningStore


def test_only_a_store_that_is_served_has_an_address_and_its_token_is_not_shown() -> None:
    client = LightningStoreClient("http://127.0.0.1:1/", token="s3cret")
    assert isinstance(client, Addressable)
    assert client.address == StoreAddress(url="http://127.0.0.1:1", token="s3cret")
    assert "s3cret" not in repr(client.address)
    assert not isinstance(InMemoryLightningStore(), Addressable)
