"""Any value as plain JSON."""

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np

from agl.tracing.plain import MAX_TEXT, as_text, json_text, plain
from agl.types import LLM


class Colour(Enum):
    RED = "red"


class Sly(str):
    __slots__ = ()


@dataclass
class Account:
    user: str
    password: str = field(repr=False)


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_plain_values_stay_as_they_are() -> None:
    value = {"a": [1, 2.5, "x", None, True], "b": {"c": []}}
    assert plain(value) == value


def test_what_json_cannot_say_becomes_text() -> None:
    assert plain(float("nan")) == "nan"
    assert plain(2**63) == "9223372036854775808"
    assert plain(-(2**63)) == -(2**63)
    assert plain(b"abc") == "<3 bytes>"
    assert plain(Path("/tmp/x")) == "PosixPath('/tmp/x')"
    assert plain({1: "a"}) == {"1": "a"}


def test_half_characters_do_not_reach_the_store() -> None:
    assert plain({"a\ud800": "b\udfffc"}) == {"a?": "b?c"}
    assert plain("grün 🙂") == "grün 🙂"


def test_enums_tuples_sets_numbers_and_str_subclasses_become_their_values() -> None:
    assert plain(Colour.RED) == "red"
    assert plain((1, 2)) == [1, 2]
    assert plain({3}) == [3]
    assert plain(np.float32(0.5)) == 0.5
    assert type(plain(Sly("x"))) is str


def test_fields_kept_out_of_repr_are_left_out() -> None:
    assert plain(Account("ann", "secret")) == {"user": "ann"}
    dumped = plain(LLM(base_url="http://x", model="m", api_key="sk-secret"))
    assert dumped == {"kind": "llm", "base_url": "http://x", "model": "m", "sampling": {}}


def test_a_value_inside_of_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert json.loads(json_text(loop))


def test_a_failing_repr_is_named_and_a_long_one_is_cut() -> None:
    assert "Broken instance" in as_text(Broken())
    assert len(as_text(type("Long", (), {"__repr__": lambda _: "y" * 10_000})())) <= MAX_TEXT
