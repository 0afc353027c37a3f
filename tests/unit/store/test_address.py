"""A store that is served says where; one that is not has no address."""

from __future__ import annotations

from agl.store.address import AWAY_SECONDS, Addressable, StoreAddress, last_seconds
from agl.store.client import LightningStoreClient
from agl.store.sqlite import InMemoryLightningStore


def test_only_a_store_that_is_served_has_an_address_and_its_token_is_not_shown() -> None:
    client = LightningStoreClient("http://127.0.0.1:1/", token="s3cret")
    assert isinstance(client, Addressable)
    assert client.address == StoreAddress(url="http://127.0.0.1:1", token="s3cret")
    assert "s3cret" not in repr(client.address)
    assert not isinstance(InMemoryLightningStore(), Addressable)


class AwayStore:
    out_of_reach_at = 0.0

    def __init__(self, *, is_away: bool) -> None:
        self.is_away = is_away


def test_what_is_known_to_be_away_is_hardly_waited_for_at_the_end() -> None:
    assert last_seconds(AwayStore(is_away=True), 1.5) == AWAY_SECONDS
    assert last_seconds(AwayStore(is_away=False), 1.5) == 1.5
    assert last_seconds(InMemoryLightningStore(), 1.5) == 1.5
