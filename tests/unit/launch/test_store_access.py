"""Where other processes reach a run's store: settings, and the token that a run makes up."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from agl.errors import ConfigError
from agl.launch.store_access import StoreAccess, kept_token
from agl.store.address import StoreAddress
from agl.store.client import LightningStoreClient


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (
            {"host": "0.0.0.0"},
            r"store_server\.host=0\.0\.0\.0 .* set store_server\.token \(AGL_STORE_TOKEN\)",
        ),
        ({"port": 70000}, r"store_server\.port=70000"),
        ({"token": "two words"}, r"store_server\.token"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        StoreAccess(**settings)


def test_with_a_token_other_machines_may_be_let_in() -> None:
    assert not StoreAccess(host="0.0.0.0", token="s3cret").is_local


async def test_a_store_that_is_served_elsewhere_is_not_served_again() -> None:
    store = LightningStoreClient("http://127.0.0.1:1", token="s3cret")
    async with StoreAccess().serving(store) as address:
        assert address == StoreAddress(url="http://127.0.0.1:1", token="s3cret")
    assert "s3cret" not in repr(address)


def test_a_token_is_made_up_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "store.token"
    token = kept_token(file)
    assert len(token) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert kept_token(file) == token
    assert kept_token(None) != kept_token(None)
