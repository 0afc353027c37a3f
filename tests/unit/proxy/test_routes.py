import pytest

from agl.proxy.refusal import CallRefusedError
from agl.proxy.routes import Address, address_from_path, dialect_of_client


def test_the_path_names_rollout_and_attempt():
    address, route = address_from_path("POST", b"/rollout/r1/attempt/a1/v1/chat/completions")
    assert address == Address(rollout_id="r1", attempt_id="a1", agent=None, endpoint="chat")
    assert route.dialect.name == "openai.chat"


def test_the_path_may_name_the_agent():
    address, _ = address_from_path("GET", b"/rollout/r1/attempt/a1/agent/sql%20writer/v1/models")
    assert address == Address(rollout_id="r1", attempt_id="a1", agent="sql writer", endpoint="models")


@pytest.mark.parametrize(
    ("end", "endpoint", "dialect"),
    [
        (b"completions", "completions", "openai.completions"),
        (b"responses", "responses", "openai.responses"),
        (b"messages", "messages", "anthropic.messages"),
        (b"v1/messages", "messages", "anthropic.messages"),
        (b"messages/count_tokens", "count_tokens", "anthropic.messages"),
        (b"embeddings", "embeddings", "openai.chat"),
    ],
)
def test_each_endpoint_speaks_its_own_format(end, endpoint, dialect):
    address, route = address_from_path("POST", b"/rollout/r1/attempt/a1/v1/" + end)
    assert (address.endpoint, route.dialect.name) == (endpoint, dialect)


def test_where_the_path_tells_nothing_the_clients_headers_tell_its_format():
    assert dialect_of_client({b"anthropic-version": b"2023-06-01"}).name == "anthropic.messages"
    assert dialect_of_client({}).name == "openai.chat"


def test_an_escaped_slash_stays_in_its_id():
    address, _ = address_from_path("POST", b"/rollout/a%2Fb/attempt/%C3%A9/v1/chat/completions")
    assert (address.rollout_id, address.attempt_id) == ("a/b", "é")


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"/v1/chat/completions",
        b"/rollout//attempt/a1/v1/chat/completions",
        b"/rollout/r1/attempt//v1/chat/completions",
        b"/rollout/r1/attempt/a1/agent//v1/chat/completions",
        b"/rollout/r1/attempt/a1/v1/images",
        b"/rollout/r1/attempt/a1/v1",
        b"/rollout/r1/attempt/a1/v1/chat/completions/",
        b"/rollout/r1/attempt/a1/chat/completions",
        b"\xff\xfe",
    ],
)
def test_any_other_path_is_a_404_that_says_how_a_url_must_look(path):
    with pytest.raises(CallRefusedError, match=r"/rollout/\{rollout_id\}/attempt/\{attempt_id\}") as caught:
        address_from_path("POST", path)
    assert caught.value.status == 404


@pytest.mark.parametrize(("method", "end"), [("GET", b"chat/completions"), ("POST", b"models")])
def test_the_wrong_method_is_a_405(method, end):
    with pytest.raises(CallRefusedError) as caught:
        address_from_path(method, b"/rollout/r1/attempt/a1/v1/" + end)
    assert caught.value.status == 405
