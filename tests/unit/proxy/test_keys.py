import pytest

from agl.proxy.keys import AttemptKeys
from agl.proxy.refusal import CallRefusedError
from agl.types.tokens import scoped_token

SECRET = "pr0xy"
OWN = scoped_token(SECRET, "r1", "a1")
ANOTHER = scoped_token(SECRET, "r1", "a2")


def bearer(key):
    return {b"authorization": b"Bearer " + key.encode("latin-1")}


def check(headers, *, required=True):
    AttemptKeys(SECRET, required=required).check(headers, "r1", "a1")


def refusal_of(headers, *, required=True):
    with pytest.raises(CallRefusedError) as caught:
        check(headers, required=required)
    assert SECRET not in str(caught.value)
    assert OWN not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "headers",
    [
        bearer(OWN),
        {b"authorization": b"bearer " + OWN.encode()},
        {b"x-api-key": OWN.encode()},
        bearer(SECRET),
        {**bearer("something else"), b"x-api-key": OWN.encode()},
    ],
)
@pytest.mark.parametrize("required", [True, False])
def test_the_attempts_key_and_the_proxys_secret_open_the_attempt(headers, required):
    check(headers, required=required)


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("headers", [bearer(ANOTHER), {b"x-api-key": ANOTHER.encode()}])
def test_the_key_of_another_attempt_is_refused_in_words(headers, required):
    assert refusal_of(headers, required=required).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("none"),
        bearer(""),
        bearer("é"),
        bearer(scoped_token("another proxy", "r1", "a1")),
        bearer("agl1.."),
        {b"authorization": OWN.encode()},
        {b"authorization": b"Basic " + OWN.encode()},
    ],
)
def test_without_a_valid_key_only_a_proxy_that_needs_none_lets_in(headers):
    assert refusal_of(headers).status == 401
    check(headers, required=False)


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(OWN)])
def test_the_proxys_accounts_are_opened_by_its_own_secret_alone(headers):
    with pytest.raises(CallRefusedError, match="the proxy's own token") as caught:
        AttemptKeys(SECRET, required=True).check_secret(headers)
    assert caught.value.status == 401
    AttemptKeys(SECRET, required=False).check_secret(headers)
    AttemptKeys(SECRET, required=True).check_secret(bearer(SECRET))
