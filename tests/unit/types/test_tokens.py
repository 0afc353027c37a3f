from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from agl.errors import ConfigError
from agl.types.tokens import require_token, scope_of, scoped_token

SECRET = "admin-token"


def test_a_scoped_token_tells_its_attempt_to_who_knows_the_admin_token() -> None:
    token = scoped_token(SECRET, "ro/1", "at.ä")

    assert scope_of(SECRET, token) == ("ro/1", "at.ä")
    assert scope_of("another", token) is None


def test_a_scoped_token_is_the_hmac_of_its_ids() -> None:
    ids = base64.urlsafe_b64encode(b'["r","a"]').decode().rstrip("=")
    digest = hmac.new(b"admin-token", b"agl scoped token 1\0" + ids.encode(), hashlib.sha256).digest()
    signature = base64.urlsafe_b64encode(digest).decode().rstrip("=")

    assert scoped_token(SECRET, "r", "a") == f"agl1.{ids}.{signature}"


def test_a_changed_token_touches_nothing() -> None:
    token = scoped_token(SECRET, "r", "a")
    _, ids, signature = token.split(".")
    other = scoped_token(SECRET, "r", "b").split(".")[1]

    for forged in (f"agl1.{other}.{signature}", f"agl2.{ids}.{signature}", f"agl1.{ids}.", f"agl1.{ids}",
                   "", "agl1.", "agl1..", SECRET, token + "=", "agl1.ä.ö"):  # fmt: skip
        assert scope_of(SECRET, forged) is None, forged


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ä", "tab\t", "agl1.x"])
def test_a_token_that_no_header_can_carry_is_a_wrong_setting(token: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.token"):
        require_token(token, "store.token")


def test_no_token_is_a_setting() -> None:
    require_token(None, "store.token")
    require_token("s3cret", "store.token")
