"""Packing: token ids exactly, logprobs to float32, and no silent rounding of what does not fit."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.types.packing import floats_from_packed, ids_from_packed, packed_floats, packed_ids


def test_ids_are_base64_of_little_endian_int32() -> None:
    # 1 and 258 are the bytes 01 00 00 00 02 01 00 00
    assert packed_ids([1, 258]) == "AQAAAAIBAAA="
    assert ids_from_packed("AQAAAAIBAAA=") == [1, 258]


def test_floats_are_base64_of_little_endian_float32() -> None:
    # -0.5 is sign 1, exponent 126: the bytes 00 00 00 bf
    assert packed_floats([-0.5]) == "AAAAvw=="
    assert floats_from_packed("AAAAvw==") == [-0.5]


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_every_id_comes_back(ids: list[int]) -> None:
    assert ids_from_packed(packed_ids(ids)) == ids


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_every_float32_comes_back(values: list[float]) -> None:
    assert floats_from_packed(packed_floats(values)) == values


def test_a_double_is_rounded_to_float32() -> None:
    assert floats_from_packed(packed_floats([0.1])) == list(struct.unpack("<f", struct.pack("<f", 0.1)))


def test_an_id_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(OverflowError):
        packed_ids([2**31])


@pytest.mark.parametrize("text", ["not base64!", "AQAAAAI=", "Ä"])
def test_text_that_was_not_packed_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - binascii, array and codec each say it their way
        ids_from_packed(text)


def test_a_number_takes_less_than_six_bytes() -> None:
    assert len(packed_ids(range(3000))) / 3000 < 5.4
