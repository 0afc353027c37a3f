"""Packed attributes come back byte by byte, whatever they were."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.store import packed
from agl.types.packing import packed_floats, packed_ids

INT32 = st.integers(-(2**31), 2**31 - 1)


def restored(attributes: dict[str, object]) -> dict[str, object]:
    places, data = packed.pack(attributes)
    stored = {**attributes, **places}
    if data is not None:
        packed.unpack(stored, data)
    return stored


@given(
    ids=st.lists(INT32),
    logprobs=st.lists(st.floats(width=32, allow_nan=False)),
    text=st.one_of(st.text(), st.binary().map(lambda data: base64.b64encode(data).decode())),
)
def test_what_was_packed_comes_back(ids: list[int], logprobs: list[float], text: str) -> None:
    attributes: dict[str, object] = {
        "agl.response_logprobs": packed_floats(logprobs),
        "other": "AAAA",
        "agl.prompt_token_ids": packed_ids(ids),
        "agl.response_token_ids.1": text,
        "agl.response_token_ids": [1, 2],
    }
    assert list(restored(attributes).items()) == list(attributes.items())


def test_an_id_takes_the_bytes_that_it_needs() -> None:
    # 1 byte for the count, 1 for the mask; then 1, 2, 3 or 4 bytes a number
    sizes = [
        len(packed.entry_from_text(packed_ids([number] * 100)) or b"") for number in (7, 500, 150_000, -1)
    ]
    assert sizes == [102, 202, 302, 402]
    assert packed.entry_from_text(packed_ids([0] * 300)) == b"\xac\x02\x00"  # 300 = 0b10_0101100, no planes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",  # 3 bytes
        "AAAAAA",  # no padding
        "AAAAAA==\n",
        "AAA AAA==",
        "AAAAAB==",  # bits behind the last byte
        "ÄAAAAA==",
        "Dh58V75GwJjtrFp7=",  # padding that is none
    ],
)
def test_text_that_would_come_back_otherwise_is_left(text: str) -> None:
    assert packed.entry_from_text(text) is None
    assert restored({"agl.prompt_token_ids": text, "agl.response_token_ids": packed_ids([1])}) == {
        "agl.prompt_token_ids": text,
        "agl.response_token_ids": packed_ids([1]),
    }


@given(
    data=st.binary(max_size=30),
    place=st.integers(0, 40),
    sign=st.sampled_from("AB=\n-w"),
    removed=st.booleans(),
)
def test_only_canonical_base64_of_whole_numbers_is_packed(
    data: bytes, place: int, sign: str, removed: bool
) -> None:
    text = base64.b64encode(data).decode()
    text = text[:place] + sign + text[place + removed :]
    try:
        plain = base64.b64decode(text)
    except ValueError:
        plain = b""
    canonical = base64.b64encode(plain).decode() == text and len(plain) % 4 == 0 and plain != b""
    assert (packed.entry_from_text(text) is not None) == canonical


def test_a_place_names_its_entry_in_sql() -> None:
    first, second = packed_ids([1]), packed_ids([2, 3])
    _, data = packed.pack({"agl.prompt_token_ids": first, "agl.response_token_ids": second})
    assert packed.packed_text(data, "\x7f1") == second
    assert packed.packed_text(data, "text") is None
    assert packed.packed_text(None, "\x7f1") is None
