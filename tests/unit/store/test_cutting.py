from __future__ import annotations

import itertools

import orjson
from hypothesis import given
from hypothesis import strategies as st

from agl.store.cutting import LONG, cut, has_marks, is_blob, pieces_of
from agl.store.packed import MARK

PIECE = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["x" * LONG, '"' + "y" * LONG + '"', '\\"', '","', "[", '{"role":"user"}']),
)
TEXT = st.lists(PIECE, max_size=12).map("".join)


@given(text=TEXT)
def test_pieces_make_the_text(text: str) -> None:
    assert "".join(cut(text)) == text


def test_a_growing_conversation_keeps_its_first_pieces() -> None:
    messages = [{"role": "user", "content": f"{number} " + "x" * 2000} for number in range(5)]
    texts = [orjson.dumps(messages[:count]).decode() for count in range(1, 6)]
    long = [{piece for piece in cut(text) if is_blob(piece)} for text in texts]
    for shorter, longer in itertools.pairwise(long):
        assert shorter < longer
    assert len(long[-1]) == 5


def test_text_that_is_no_json_is_one_piece() -> None:
    assert cut("x" * 5000) == ["x" * 5000]


def test_a_text_with_the_mark_is_never_cut() -> None:
    text = f'["{MARK}", "{"x" * 3000}"]'
    assert pieces_of(text) == [text]
    assert is_blob(MARK)
    assert has_marks(MARK)
    assert not has_marks("x" * (LONG - 1))
