"""Answers that are no success, read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agl.http.parsing import Answer
from agl.store.client.refusals import identity_in, refusal_in, retry_after


def answer(status: int, value: Any = None, *, raw: bytes | None = None, **headers: bytes) -> Answer:
    named = {name.replace("_", "-").encode(): text for name, text in headers.items()}
    return Answer(status, orjson.dumps(value) if raw is None else raw, headers=named)


def test_the_stores_own_refusal_has_its_code_and_message() -> None:
    refusal = refusal_in(answer(404, {"error": {"code": "not_found", "message": "no such rollout"}}))
    assert (refusal.code, refusal.message) == ("not_found", "no such rollout")


@pytest.mark.parametrize(
    "strange",
    [
        answer(404, {"detail": "Not Found"}),
        answer(404, raw=b"<html>"),
        answer(404, {"error": "no"}),
        answer(404, {"error": {"code": 3, "message": "m"}}),
        answer(404, []),
        answer(404, raw=b""),
    ],
)
def test_anybody_elses_refusal_has_none(strange: Answer) -> None:
    refusal = refusal_in(strange)
    assert (refusal.code, refusal.message) == (None, "HTTP 404")


def test_a_stores_health_names_it() -> None:
    assert identity_in(answer(200, {"status": "ok", "identity": "abc", "more": 1})) == "abc"


@pytest.mark.parametrize(
    "strange",
    [
        answer(404, {"identity": "abc"}),
        answer(200, {"status": "ok"}),
        answer(200, {"identity": 5}),
        answer(200, {"identity": "a\r\nb"}),
        answer(200, raw=b"hello"),
        answer(200, ["identity"]),
    ],
)
def test_other_answers_name_no_store(strange: Answer) -> None:
    assert identity_in(strange) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, 0.0), ({"retry_after": b"12"}, 12.0), ({"retry_after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0)],
)
def test_the_servers_wish_is_read(headers: dict[str, bytes], seconds: float) -> None:
    assert retry_after(answer(503, **headers)) == seconds
