"""URLs and keys of servers are checked before anything starts."""

from __future__ import annotations

import pytest

from agl.errors import ConfigError
from agl.proxy.upstreams.base import checked_url, is_retried, is_sick, key_from_environment, masked, shown


def test_a_url_loses_its_last_slash():
    assert checked_url("http://gpu1:8000/v1/", "urls") == "http://gpu1:8000/v1"


@pytest.mark.parametrize(
    "url",
    [
        "gpu1:8000",
        "ftp://x/v1",
        "http://",
        "http://x/v1?key=1",
        "http://x/v1#a",
        "http://x:99999/v1",
        "http://x:0/v1",
    ],
)
def test_what_is_no_base_url_is_refused_by_the_settings_name(url):
    with pytest.raises(ConfigError, match="endpoint a: urls"):
        checked_url(url, "endpoint a: urls")


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        checked_url("http://me:s3cret@x/v1", "urls")
    assert "s3cret" not in str(caught.value)


def test_a_key_is_read_from_the_named_variable(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", " k3y\n")
    assert key_from_environment("JUDGE_KEY", "api_key_env") == "k3y"
    assert key_from_environment(None, "api_key_env") is None


@pytest.mark.parametrize("value", ["", "  ", "ké", "a\nb"])
def test_a_variable_without_a_key_is_named_and_its_value_is_not(monkeypatch, value):
    monkeypatch.setenv("JUDGE_KEY", value)
    with pytest.raises(ConfigError, match="api_key_env=JUDGE_KEY") as caught:
        key_from_environment("JUDGE_KEY", "api_key_env")
    assert not value.strip() or value.strip() not in str(caught.value)


def test_a_key_in_a_servers_text_is_masked():
    assert masked("bad key k3y, k3y", "k3y") == "bad key ***, ***"
    assert masked("text", None) == "text"


def test_long_texts_are_cut():
    assert shown("a" * 500) == "a" * 500
    assert shown("a" * 501) == "a" * 500 + " ..."


@pytest.mark.parametrize(
    ("status", "retried"),
    [(400, False), (404, False), (408, True), (409, True), (429, True), (500, True), (529, True)],
)
def test_statuses_that_may_pass_are_retried(status, retried):
    assert is_retried(status) is retried


def test_a_server_that_says_what_it_cannot_do_is_well():
    assert [status for status in (400, 429, 500, 501, 502, 503, 505, 529) if is_sick(status)] == [
        500,
        502,
        503,
        529,
    ]
    assert not is_retried(501)
