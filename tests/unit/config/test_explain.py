"""Nearest names: what is offered for a misspelt one, and what is listed when nothing is near."""

from __future__ import annotations

from agl.config.explain import nearest, not_an_override


def test_a_near_name_is_offered_with_its_parent() -> None:
    assert (
        nearest("group_sizee", ["group_size", "kind"], "algorithm") == "; did you mean algorithm.group_size?"
    )


def test_without_a_near_name_all_are_listed_but_private_ones() -> None:
    assert nearest("zzz", ["_target_", "kind", "limit"]) == "; there is kind, limit"


def test_without_any_name_nothing_is_said() -> None:
    assert nearest("zzz", []) == ""


def test_the_value_of_a_secret_is_not_repeated() -> None:
    assert not_an_override("name={a").startswith("name={a: not an override; write key=value")
    assert not_an_override("token={abc123").startswith("token=***: not an override; write key=value")
    assert not_an_override("url={http://me:pass@host").startswith("url={http://***@host: not an override")
