import pytest

from agl.errors import ConfigError
from agl.proxy.server import LLMProxy, ProxyServer
from agl.types import ModelEndpoint


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_another_address_than_this_machines_own_needs_a_token(host):
    with pytest.raises(ConfigError, match=r"proxy\.host"):
        LLMProxy(host=host)
    assert LLMProxy(host=host, token="t0ken").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machines_own_addresses_need_none(host):
    assert LLMProxy(host=host).token is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("token", ""),
        ("token", "two words"),
        ("token", "é"),
        ("max_body_bytes", 0),
        ("upstream_timeout_seconds", 0.0),
        ("upstream_timeout_seconds", float("nan")),
        ("max_retries", -1),
    ],
)
def test_a_wrong_setting_is_named(setting, value):
    with pytest.raises(ConfigError, match=rf"proxy\.{setting}"):
        LLMProxy(**{setting: value})


def test_a_wrong_route_is_told_before_anything_starts():
    with pytest.raises(ConfigError, match="endpoint judge: agents"):
        LLMProxy(endpoints={"judge": ModelEndpoint(model="m", urls=("http://x/v1",), agents=("(",))})


def test_the_token_is_not_in_the_repr():
    assert "t0ken" not in repr(ProxyServer(url="http://127.0.0.1:1", api_key="t0ken"))
    assert "t0ken" not in repr(LLMProxy(token="t0ken"))
