"""agl proxy: its settings, and what it says when it serves."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from command_line import Agl

from agl.cli.proxy import proxy_settings, start_lines
from agl.errors import ConfigError
from agl.launch.proxy import ServedProxy

NOTHING = {"store_url": None, "config_dir": None}
STORE = "http://127.0.0.1:4747"


def test_options_replace_settings_and_are_taken_literally(in_folder: Path) -> None:
    settings = proxy_settings(
        ["proxy.port=1", "proxy.cache=all"],
        **{**NOTHING, "store_url": STORE},
        port=5000,
        token="${x}",
        host=None,
    )
    assert settings.values["store"]["url"] == STORE
    proxy = settings.values["proxy"]
    assert (proxy["host"], proxy["port"], proxy["token"], proxy["cache"]) == (
        "127.0.0.1",
        5000,
        "${x}",
        "all",
    )


def test_the_environment_has_the_secrets(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_PROXY_TOKEN", "of-the-proxy")
    monkeypatch.setenv("AGL_STORE_TOKEN", "of-the-store")
    values = proxy_settings([], **{**NOTHING, "store_url": STORE}).values
    assert (values["proxy"]["token"], values["store"]["token"]) == ("of-the-proxy", "of-the-store")


def test_a_store_must_be_named(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match="--store-url URL"):
        proxy_settings([], **NOTHING)
    assert proxy_settings([f"store.url={STORE}"], **NOTHING).values["store"]["url"] == STORE


def test_the_settings_are_shown_without_secrets(agl: Agl) -> None:
    code, out, err = agl("proxy", "--store-url", STORE, "--token", "a-secret-of-some-length", "--cfg")
    assert (code, err) == (0, "")
    assert "a-secret" not in out
    assert yaml.safe_load(out)["proxy"]["port"] == 4748


def test_the_start_lines_say_where_it_is_and_what_it_serves() -> None:
    served = ServedProxy(
        url="http://127.0.0.1:4748", records=STORE, identity="id-1", models=("policy", "judge")
    )
    assert start_lines(served, token=None) == [
        "agl proxy serves http://127.0.0.1:4748",
        "  records  http://127.0.0.1:4747",
        "  identity id-1",
        "  token    none: only this machine can connect",
        "  models   policy, judge",
        "  accounts http://127.0.0.1:4748/accounts",
        "  agents   http://127.0.0.1:4748/rollout/ROLLOUT_ID/attempt/ATTEMPT_ID/v1",
    ]


def test_the_start_lines_hold_no_token_and_say_what_is_missing() -> None:
    served = ServedProxy(url="http://h:1", records=STORE, identity="i", models=())
    lines = start_lines(served, token="a-secret-of-some-length")
    assert lines[3] == "  token    set (...ngth)"
    assert lines[4] == "  models   none yet: give proxy.endpoints, or add endpoints to the store"
