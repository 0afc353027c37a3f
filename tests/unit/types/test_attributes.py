"""Attribute keys: which choice of a call a key is about."""

from __future__ import annotations

from agl.types.attributes import RESPONSE_TOKEN_IDS, of_choice


def test_the_first_choice_has_the_plain_key_and_the_others_their_number() -> None:
    assert of_choice(RESPONSE_TOKEN_IDS, 0) == "agl.response_token_ids"
    assert of_choice(RESPONSE_TOKEN_IDS, 2) == "agl.response_token_ids.2"
