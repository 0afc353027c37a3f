from __future__ import annotations

import pytest

from agl.errors import ConfigError
from agl.store.mongo.location import check_settings, location_of


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mongodb://h", "mongodb://h/agl"),
        ("mongodb://h:27017/admin?replicaSet=r", "mongodb://h:27017/agl"),
        ("mongodb://user:secret@h1:1,h2:2/?w=1", "mongodb://h1:1,h2:2/agl"),
        ("mongodb+srv://user:se%40cret@cluster.example.net", "mongodb+srv://cluster.example.net/agl"),
        ("mongodb://user:sec/ret@h/x", "mongodb://h/agl"),
        ("mongodb://user:sec@ret@[::1]:5", "mongodb://[::1]:5/agl"),
        ("mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:sec@ret=", "mongodb://.../agl"),
    ],
)
def test_the_location_names_the_hosts_and_no_secret(url: str, shown: str) -> None:
    assert location_of(url, database="agl", prefix="") == shown
    assert "sec" not in location_of(url, database="agl", prefix="p_")


def test_the_location_names_the_prefix() -> None:
    assert location_of("mongodb://h", database="d", prefix="p_") == "mongodb://h/d (p_*)"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("url", "http://h"),
        ("url", ""),
        ("database", ""),
        ("database", "a.b"),
        ("database", "x" * 64),
        ("prefix", "a$"),
        ("prefix", "x" * 61),
        ("timeout_seconds", 0.0),
        ("timeout_seconds", float("nan")),
    ],
)
def test_a_setting_that_can_never_work_is_refused_by_its_name(setting: str, value: object) -> None:
    settings = {"url": "mongodb://u:secret@h", "database": "agl", "prefix": "", "timeout_seconds": 1.0}
    with pytest.raises(ConfigError, match=f"store.{setting}") as refused:
        check_settings(**(settings | {setting: value}))  # pyright: ignore[reportArgumentType]
    assert "secret" not in str(refused.value)
