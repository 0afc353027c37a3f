from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_policies import byte_tokenizer, word_tokenizer
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from agl.inference.answer import cut_at_stop
from agl.inference.text_stream import SettledText, TextStream, TokenJoints

BYTES = byte_tokenizer("", vocabulary=300, texts=["SELECT name FROM employees"])
WORDS = word_tokenizer("", words=["<pad>", "<s>", "</s>", "a", "bc", "<tool_call>"])


def sentencepiece_like() -> Any:
    """As Llama 2's: pieces with a mark for the space, and single bytes for what has no piece."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "bc", "▁", "é"]
    raw = Tokenizer(models.BPE({piece: place for place, piece in enumerate(pieces)}, [], byte_fallback=True))
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")


PIECES = sentencepiece_like()
TOKENIZERS = {"bytes": BYTES, "words": WORDS, "pieces": PIECES}


def text_of(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


def steps(draw: Any, ids: list[int]) -> list[list[int]]:
    """The ids in the portions in which they might be read."""
    cuts = sorted(draw(st.sets(st.integers(0, len(ids)), max_size=len(ids))) | {0, len(ids)})
    return [ids[start:end] for start, end in pairwise(cuts)]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_settled_text_is_never_taken_back(name: str, data: Any):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=60))
    settled, given_text = SettledText(TokenJoints(tokenizer)), ""
    for portion in steps(data.draw, ids):
        given_text += settled.push(portion)
        assert text_of(tokenizer, ids).startswith(given_text)


@given(text=st.text(max_size=80), data=st.data())
def test_whole_characters_are_given_at_once(text: str, data: Any):
    ids = BYTES.encode(text, add_special_tokens=False)
    settled = SettledText(TokenJoints(BYTES))
    given_text = "".join(map(settled.push, steps(data.draw, ids)))
    if text.endswith("\ufffd"):
        given_text += text[len(given_text) :]
    assert given_text == text


def test_half_a_character_waits_for_its_end():
    ids = BYTES.encode("a€b", add_special_tokens=False)
    settled = SettledText(TokenJoints(BYTES))
    assert [settled.push([token_id]) for token_id in ids] == ["a", "", "", "€", "b"]


def test_a_run_of_byte_tokens_waits_until_it_ends():
    euro = [PIECES.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in "€".encode()]
    bc = PIECES.convert_tokens_to_ids("bc")
    settled = SettledText(TokenJoints(PIECES))
    assert [settled.push([token_id]) for token_id in [bc, *euro, bc]] == ["bc", "", "", "", "€bc"]


def test_a_long_answer_is_decoded_in_short_pieces():
    decoded: list[int] = []

    class Counting:
        clean_up_tokenization_spaces = False

        def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
            decoded.append(len(ids))
            return BYTES.decode(ids, skip_special_tokens=skip_special_tokens)

    ids = BYTES.encode("word " * 500, add_special_tokens=False)
    broken = [BYTES.encode("€", add_special_tokens=False)[0]] * 500
    for sampled in (ids, broken):
        decoded.clear()
        settled = SettledText(TokenJoints(Counting()))
        for token_id in sampled:
            settled.push([token_id])
        assert sum(decoded) < 40 * len(sampled)


def test_a_tokenizer_that_cleans_up_spaces_shows_nothing_before_the_end():
    cleaning = word_tokenizer("", words=["<pad>", "<s>", "</s>", "do", "n't"])
    cleaning.clean_up_tokenization_spaces = True
    assert text_of(cleaning, [3, 4]) == "don't"
    stream = TextStream(TokenJoints(cleaning), stop=(), with_tools=False)
    assert stream.push([3]) + stream.push([4]) == ""
    assert stream.rest("don't") == "don't"


@given(
    parts=st.lists(
        st.sampled_from(["ab", "b", "a", " ", "\n", "<tool", "_call>", "<tool_call>", "€", "{}"]), max_size=12
    ),
    stop=st.sampled_from([(), ("abab",), ("b\n", "a<"), ("€€",), ("<tool_call>",)]),
    with_tools=st.booleans(),
    data=st.data(),
)
def test_what_is_shown_begins_the_text_wherever_the_answer_ends(
    parts: list[str], stop: tuple[str, ...], with_tools: bool, data: Any
):
    ids = BYTES.encode("".join(parts), add_special_tokens=False)
    # Sampling ends with the first token that completes a stop string.
    ends = [
        size for size in range(1, len(ids) + 1) if cut_at_stop(text_of(BYTES, ids[:size]), stop) is not None
    ]
    ids = ids[: ends[0]] if ends else ids
    text = text_of(BYTES, ids)
    if (cut := cut_at_stop(text, stop)) is not None:
        text = cut
    stream = TextStream(TokenJoints(BYTES), stop=stop, with_tools=with_tools)
    shown = "".join(map(stream.push, steps(data.draw, ids)))
    endings = [text]
    if with_tools and (cut is None or "<tool_call>" in text):  # behind a stop string no call can come
        endings.append(text.partition("<tool_call>")[0].rstrip())
    for ending in endings:
        assert ending.startswith(shown)
        assert stream.rest(ending) == ending[len(shown) :]


def test_the_beginning_of_a_stop_string_waits_and_comes_when_it_was_none():
    stream = TextStream(TokenJoints(BYTES), stop=("END",), with_tools=False)
    ids = [BYTES.encode(char, add_special_tokens=False)[0] for char in "xENDS"]
    assert [stream.push([token_id]) for token_id in ids[:3]] == ["x", "", ""]
    assert stream.push(BYTES.encode("x", add_special_tokens=False)) == "ENx"


def test_a_text_that_does_not_begin_with_what_was_shown_has_no_rest():
    stream = TextStream(TokenJoints(BYTES), stop=(), with_tools=False)
    stream.push(BYTES.encode("do n", add_special_tokens=False))
    assert stream.rest("don't") is None
