from __future__ import annotations

from typing import Any

import pytest

from agl.errors import ConfigError
from agl.store.server import StoreServer
from agl.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0"}, r"host=0\.0\.0\.0 can be reached from other machines: set token"),
        ({"host": "example.org"}, r"host=example\.org can be reached"),
        ({"host": ""}, r"host= can be reached"),
        ({"token": ""}, r"token: ASCII text without spaces"),
        ({"port": -1}, r"port=-1"),
        ({"port": 65536}, r"port=65536"),
        ({"max_body_bytes": 0}, r"max_body_bytes=0: at least 1"),
        ({"max_connections": 0}, r"max_connections=0: at least 1"),
        ({"grace_seconds": -1.0}, r"grace_seconds=-1\.0: 0 or more"),
        ({"grace_seconds": float("nan")}, r"grace_seconds=nan"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StoreServer(SqliteStore(":memory:"), **settings)


@pytest.mark.parametrize(
    "settings", [{}, {"host": "localhost"}, {"host": "::1"}, {"host": "0.0.0.0", "token": "t"}]
)
def test_this_machine_needs_no_token(settings: dict[str, Any]) -> None:
    assert StoreServer(SqliteStore(":memory:"), **settings).port == 4747
